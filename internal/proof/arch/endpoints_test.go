package arch_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// endpoint is an operation as openapi.yaml lists it.
type endpoint struct{ path, method, tag string }

// endpoints are the operations in the order of the file.
func endpoints(t *testing.T) (all []endpoint) {
	t.Helper()
	var at endpoint
	for _, line := range regexp.MustCompile(`(?m)^  (/\S+):$|^    (get|post|put|patch|delete):$|^      tags: \[([\w ]+)\]$`).FindAllStringSubmatch(readText(t, "openapi.yaml"), -1) {
		switch {
		case line[1] != "":
			at.path = line[1]
		case line[2] != "":
			at.method = line[2]
		default:
			at.tag = line[3]
			all = append(all, at)
		}
	}
	if len(all) < 60 {
		t.Fatalf("openapi.yaml has %d operations, which are too few: the test does not read it any more", len(all))
	}
	return all
}

// tagsOf are the names of the contract's tags in order, each with its description.
func tagsOf(t *testing.T) (names []string, meanings map[string]string) {
	t.Helper()
	meanings = map[string]string{}
	for _, found := range regexp.MustCompile(`(?m)^  - name: ([\w ]+)\n    description: (.*)\.$`).FindAllStringSubmatch(readText(t, "openapi.yaml"), -1) {
		names, meanings[found[1]] = append(names, found[1]), found[2]
	}
	return names, meanings
}

// TestPathsStandInOrder keeps the contract in the order in which it is read: the paths
// of a tag together, the tags as they are listed, and the operations of a path as most
// things are used.
func TestPathsStandInOrder(t *testing.T) {
	t.Parallel()
	tags, _ := tagsOf(t)
	methods := []string{"get", "post", "put", "patch", "delete"}
	last := endpoint{tag: tags[0]}
	for _, e := range endpoints(t) {
		name := strings.ToUpper(e.method) + " " + e.path
		switch at, before := slices.Index(tags, e.tag), slices.Index(tags, last.tag); {
		case at < 0:
			t.Errorf("openapi.yaml: %s has the tag %s, which is not in the list of tags", name, e.tag)
		case at < before:
			t.Errorf("openapi.yaml: %s (%s) stands after an operation of %s: move its path to the others of its tag", name, e.tag, last.tag)
		}
		if e.path == last.path && slices.Index(methods, e.method) < slices.Index(methods, last.method) {
			t.Errorf("openapi.yaml: %s stands after %s of the same path; the order is %s", name, last.method, strings.Join(methods, ", "))
		}
		last = e
	}
}

// The list of endpoints in the docs is the contract's.
func TestDocsListTheEndpoints(t *testing.T) {
	t.Parallel()
	tags, meanings := tagsOf(t)
	rows := map[string][]string{}
	for _, e := range endpoints(t) {
		path := strings.TrimPrefix(e.path, "/api/v1/scheduler")
		rows[e.tag] = append(rows[e.tag], fmt.Sprintf("`%s %s`", strings.ToUpper(e.method), path))
	}
	var table strings.Builder
	table.WriteString("| group | for | endpoints |\n| --- | --- | --- |\n")
	for _, tag := range tags {
		fmt.Fprintf(&table, "| %s | %s | %s |\n", tag, meanings[tag], strings.Join(rows[tag], " · "))
	}
	block(t, "docs/reference/api.md", "<!-- endpoints:begin -->\n", "<!-- endpoints:end -->", table.String())
}
