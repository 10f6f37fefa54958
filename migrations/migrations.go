// Package migrations is the schema of the database, embedded in the binary.
//
// It owns the numbered goose files beside it and nothing else; package
// postgres applies them. A released file is never changed: a change is a new
// file, and a column is added and filled before anything relies on it.
package migrations

import "embed"

// FS holds the migrations, NNNNNN_what.sql, each with an up and a down part.
//
//go:embed *.sql
var FS embed.FS
