// Package model is the protocol as step functions over tables in memory, and
// the proof that seeded faults do not break it.
//
// It owns the operations of the protocol, each equal to one statement or
// transaction of db/queries and compared with PostgreSQL by the contract
// tests; it refuses to be used by any process. Nobody imports it: its tests
// are what it is for.
package model
