//go:build race

package simulation

// ordinary is how many seeds a run has that names no number: under the race
// detector each takes ten times as long, and the model has one goroutine.
const ordinary = 100
