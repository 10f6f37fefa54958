// Responses writes into the contract the error responses that operations have in common.
//
// It owns which operation has which of them. It refuses to touch anything else of the
// file: a response that an operation describes by itself, or names another one for,
// stays. "make gen" runs it before the generators, so that nobody writes these lines by
// hand and the file that is served and read by generators is complete.
package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

func main() {
	path := os.Args[1]
	before, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, []byte(fill(string(before))), 0o644)
	}
	if err != nil {
		panic(err) // make gen shows it
	}
}

// shared are the responses of an operation: by status, the name below /api and the
// name below /internal.
var shared = []struct {
	status, public, internal string
	of                       func(operation) bool
}{
	{"304", "NotModified", "NotModified", func(o operation) bool { return o.method == "get" && !o.open }},
	{"400", "Invalid", "ServiceInvalid", func(operation) bool { return true }},
	{"401", "Unauthorized", "ServiceUnauthorized", func(o operation) bool { return !o.open }},
	{"403", "Forbidden", "ServiceForbidden", func(o operation) bool { return !o.open }},
	{"406", "NotAcceptable", "ServiceNotAcceptable", func(operation) bool { return true }},
	{"413", "TooLarge", "ServiceTooLarge", func(operation) bool { return true }},
	{"415", "UnsupportedMediaType", "ServiceUnsupported", func(o operation) bool { return o.body }},
	{"429", "RateLimited", "ServiceRateLimited", func(o operation) bool { return !o.free }},
	{"500", "Internal", "ServiceInternal", func(operation) bool { return true }},
	{"503", "Unavailable", "ServiceUnavailable", func(o operation) bool { return !o.free }},
}

// operation is what decides which responses an operation shares.
type operation struct {
	method         string
	internal, body bool
	open           bool // needs no token of a tenant
	free           bool // needs none at all
}

var (
	pathLine     = regexp.MustCompile(`^  (/\S*):$`)
	methodLine   = regexp.MustCompile(`^    (get|put|post|patch|delete):$`)
	responseLine = regexp.MustCompile(`^        '(\d{3})':(.*)$`)
)

// fill writes the shared responses of every operation anew. It goes by lines, so that
// comments and the form of everything else stay.
func fill(contract string) string {
	var out []string
	var o operation
	lines := strings.Split(contract, "\n")
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		out = append(out, line)
		switch {
		case pathLine.MatchString(line):
			o = operation{internal: strings.HasPrefix(line, "  /internal")}
		case methodLine.MatchString(line):
			o = operation{method: methodLine.FindStringSubmatch(line)[1], internal: o.internal}
		case line == "      x-permission: public":
			o.open, o.free = true, true
		case line == "      x-permission: callback", line == "      x-permission: ping":
			o.open = true
		case line == "      requestBody:":
			o.body = true
		case line == "      responses:":
			end := i + 1
			for end < len(lines) && strings.HasPrefix(lines[end], "        ") {
				end++
			}
			out = append(out, responses(o, lines[i+1:end])...)
			i = end - 1
		}
	}
	return strings.Join(out, "\n")
}

// responses are those that the operation describes and those that it shares, by status.
func responses(o operation, described []string) []string {
	blocks, statuses := map[string][]string{}, []string{}
	status := ""
	for _, line := range described {
		if found := responseLine.FindStringSubmatch(line); found != nil {
			status = found[1]
			statuses = append(statuses, status)
		}
		blocks[status] = append(blocks[status], line)
	}
	for _, s := range shared {
		name := s.public
		if o.internal {
			name = s.internal
		}
		line := fmt.Sprintf("        '%s': { $ref: '#/components/responses/%s' }", s.status, name)
		own := len(blocks[s.status]) > 0 && !slices.Equal(blocks[s.status], []string{line})
		switch {
		case own:
		case s.of(o):
			statuses, blocks[s.status] = append(statuses, s.status), []string{line}
		default:
			delete(blocks, s.status)
		}
	}
	slices.Sort(statuses)
	var lines []string
	for _, status := range slices.Compact(statuses) {
		lines = append(lines, blocks[status]...)
	}
	return lines
}
