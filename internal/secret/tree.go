package secret

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
)

// spot is where a text stands in a JSON value.
type spot struct {
	path string // with dots and indexes, from the whole on: "headers.Authorization", "body[2].a"
	top  string // the member of the whole that it stands in; empty for the whole itself
	name string // the innermost member that it is the value of
	key  string // the path, such that no two places have the same
}

// child is the spot of a member.
func (s spot) child(name string) spot {
	c := spot{path: name, top: name, name: name}
	if s.path != "" {
		c.path, c.top = s.path+"."+name, s.top
	}
	c.key = s.key + "\x00" + name // no name holds this character
	return c
}

// item is the spot of an item of a list; it belongs to the list's name.
func (s spot) item(i int) spot {
	s.path += "[" + strconv.Itoa(i) + "]"
	s.key += "\x00" + strconv.Itoa(i)
	return s
}

// rewrite replaces each text of a JSON value, but not the names in it, by what
// fn makes of it. Numbers stay as they are written.
func rewrite(raw json.RawMessage, fn func(at spot, text string) string) (json.RawMessage, error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var tree any
	if err := decoder.Decode(&tree); err != nil {
		return nil, fmt.Errorf("read a JSON value: %w", err)
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(rewriteTree(tree, spot{}, fn)); err != nil {
		return nil, fmt.Errorf("write a JSON value: %w", err)
	}
	return bytes.TrimRight(out.Bytes(), "\n"), nil
}

func rewriteTree(tree any, at spot, fn func(at spot, text string) string) any {
	switch tree := tree.(type) {
	case string:
		return fn(at, tree)
	case []any:
		for i := range tree {
			tree[i] = rewriteTree(tree[i], at.item(i), fn)
		}
	case map[string]any:
		for name := range tree {
			tree[name] = rewriteTree(tree[name], at.child(name), fn)
		}
	}
	return tree
}
