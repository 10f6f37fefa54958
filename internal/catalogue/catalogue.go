// Package catalogue is the Go functions that the workers of an installation have.
//
// It owns how a worker makes them known and how an API process, which may be another
// build, gets to know them. It refuses to run and to judge anything, and to forget: a
// function that no worker has any more stays known until its row is deleted, and its
// executions fail.
package catalogue

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/scheduler-service/scheduler/internal/executor/parameters"
)

// The bounds of what is known.
const (
	maxFunctions   = 1000     // of an installation; the API passes over the rest
	maxSchema      = 32 << 10 // bytes of JSON
	maxName        = 200
	maxDescription = 1000
)

// RefreshEvery is how old the knowledge of an API process may be.
const RefreshEvery = 10 * time.Second

// Function is one of a worker.
type Function struct {
	Module, Name, Description string
	Parameters                *parameters.Schema // nil takes any object
}

// row is a function as it is stored.
type row struct {
	Function
	schema json.RawMessage
}

// rowsOf checks functions and writes their schemas.
func rowsOf(functions []Function) ([]row, error) {
	if len(functions) > maxFunctions {
		return nil, fmt.Errorf("a worker may have %d functions, and this one has %d", maxFunctions, len(functions))
	}
	var rows []row
	for _, f := range functions {
		if f.Module == "" || f.Name == "" || len(f.Module) > maxName || len(f.Name) > maxName || len(f.Description) > maxDescription {
			return nil, fmt.Errorf("function %.60q of module %.60q: names have 1 to %d bytes, a description at most %d", f.Name, f.Module, maxName, maxDescription)
		}
		schema := json.RawMessage(`{}`)
		if f.Parameters != nil {
			var err error
			if schema, err = json.Marshal(f.Parameters); err != nil || len(schema) > maxSchema {
				return nil, fmt.Errorf("function %s of module %s: its parameters cannot be described in %d bytes", f.Name, f.Module, maxSchema)
			}
		}
		rows = append(rows, row{Function: f, schema: schema})
	}
	return rows, nil
}

// Known is what an API process knows. It knows nothing before the first Refresh.
type Known struct {
	store *Store
	all   atomic.Pointer[map[string]map[string]*parameters.Schema]
}

// NewKnown makes the knowledge of a process.
func NewKnown(store *Store) *Known { return &Known{store: store} }

// Refresh reads what workers published.
func (k *Known) Refresh(ctx context.Context) error {
	functions, err := k.store.List(ctx)
	if err != nil {
		return err
	}
	all := map[string]map[string]*parameters.Schema{}
	for _, f := range functions {
		if all[f.Module] == nil {
			all[f.Module] = map[string]*parameters.Schema{}
		}
		all[f.Module][f.Name] = f.Parameters
	}
	k.all.Store(&all)
	return nil
}

// Functions are the names of a module's functions, in order; none where there is no
// such module.
func (k *Known) Functions(module string) []string {
	var names []string
	if all := k.all.Load(); all != nil {
		for name := range (*all)[module] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Modules are the modules, in order.
func (k *Known) Modules() []string {
	var names []string
	if all := k.all.Load(); all != nil {
		for name := range *all {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Parameters describes what a function takes; known says whether there is one.
func (k *Known) Parameters(module, name string) (schema *parameters.Schema, known bool) {
	if all := k.all.Load(); all != nil {
		schema, known = (*all)[module][name]
	}
	return schema, known
}
