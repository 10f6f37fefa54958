// Package patch is what changes one JSON document into another: merging a
// change into a document, and finding the changes between two.
//
// It owns the merge of RFC 7396 and how a difference is written as paths. It
// works on documents as encoding/json decodes them into any, refuses to know
// what they mean, and changes none that it is given.
package patch

import (
	"maps"
	"reflect"
	"slices"
)

// Merge applies a merge patch to a document (RFC 7396, section 2): objects are
// merged name by name, null removes a name, anything else replaces what is
// there.
func Merge(document, change any) any {
	wanted, ok := change.(map[string]any)
	if !ok {
		return change
	}
	result := map[string]any{}
	if object, ok := document.(map[string]any); ok {
		maps.Copy(result, object)
	}
	for name, value := range wanted {
		if value == nil {
			delete(result, name)
			continue
		}
		result[name] = Merge(result[name], value)
	}
	return result
}

// Change is a value that differs between two documents. Absent ones are nil,
// and so is null: a document that tells them apart is not compared here.
type Change struct {
	Path     string // names, joined with dots
	From, To any
}

// Between lists what differs, in the order of the paths. Objects are compared
// name by name, everything else as a whole.
func Between(from, to map[string]any) []Change { return between("", from, to) }

func between(path string, from, to map[string]any) []Change {
	names := slices.Collect(maps.Keys(from))
	for name := range to {
		if _, both := from[name]; !both {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var changes []Change
	for _, name := range names {
		at := name
		if path != "" {
			at = path + "." + name
		}
		a, aIs := from[name].(map[string]any)
		b, bIs := to[name].(map[string]any)
		switch {
		case aIs && bIs:
			changes = append(changes, between(at, a, b)...)
		case !reflect.DeepEqual(from[name], to[name]):
			changes = append(changes, Change{Path: at, From: from[name], To: to[name]})
		}
	}
	return changes
}
