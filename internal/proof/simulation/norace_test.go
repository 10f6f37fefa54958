//go:build !race

package simulation

// ordinary is how many seeds a run has that names no number.
const ordinary = 500
