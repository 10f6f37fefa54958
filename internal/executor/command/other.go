//go:build !linux

package command

import (
	"context"
	"errors"
	"os"
)

// EntryName is the name of Keep among the entries of a worker's binary.
const EntryName = "command"

// Keep is the entry of the process that keeps a program: none here.
func Keep([]*os.File) int { return 1 }

type box struct{ about string }

func open(context.Context, Config) (*box, error) { return nil, errors.New("COMMAND_JOBS needs Linux") }

func (b *box) close() {}

func (b *box) start(context.Context, order, *output) (*tree, error) {
	return nil, errors.ErrUnsupported
}

type tree struct{ lost bool }

func (t *tree) wait(context.Context) ending { return ending{} }
