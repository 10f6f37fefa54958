//go:build !race

package rest_test

// mostBytes is what one request may hold. The test allocates as
// much again for what it reads and checks.
const mostBytes = 32 << 20

// underRace: the detector watches.
const underRace = false
