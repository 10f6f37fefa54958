// Package e2e proves the whole path: HTTP request to stored result, through
// the real processes on a real PostgreSQL and a real Redis.
//
// It owns tests only. It builds and starts the programs under cmd as an
// operator would, speaks to them with the generated client, and breaks them on
// purpose; it refuses to construct any part of the product itself.
package e2e
