//go:build race

package rest_test

// mostBytes is what one request may hold, and a quarter more: under the race
// detector pools of buffers forget some of them on purpose.
const mostBytes = 40 << 20

// underRace: the detector watches.
const underRace = true
