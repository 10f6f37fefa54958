// Package migrations is the schema of the database, embedded in the binary.
//
// It owns the numbered goose files in its folders and nothing else; package
// postgres applies them. A released file is never changed: a change is a new
// file, and a column is added and filled before anything relies on it.
package migrations

import (
	"embed"
	"io/fs"
)

// FS holds the migrations, NNNNNN_what.sql, each with an up and a down part: the
// baseline of 1.0, and from 000200 on those that came after it.
//
//go:embed *.sql
var FS embed.FS

const (
	// FirstOfBaseline is the number of the baseline's first file. An installation
	// with a lower one is from before 1.0.
	FirstOfBaseline = 100
	// LastBefore is the number that an installation from before 1.0 must have
	// reached before it can be upgraded.
	LastBefore = 39
)

//go:embed before/*.sql
var before embed.FS

// Before returns the migrations that take an installation from LastBefore to the
// baseline.
func Before() (fs.FS, error) { return fs.Sub(before, "before") }
