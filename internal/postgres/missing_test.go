package postgres

import (
	"slices"
	"strings"
	"testing"
)

// Everything that is missing is named at once, with what to do about it.
func TestMissingIsNamed(t *testing.T) {
	t.Parallel()
	good := server{version: "17.2", number: 170002, encoding: "UTF8", login: "own er", database: "db", mayCreate: true, mayCreateRoles: true}
	for _, test := range []struct {
		name   string
		change func(*server)
		want   []string // the beginning of each
	}{
		{"nothing", func(*server) {}, nil},
		{"roles made by an administrator", func(s *server) { s.mayCreateRoles, s.hasRoles = false, true }, nil},
		{"an old server", func(s *server) { s.version, s.number = "14.13", 140013 }, []string{"PostgreSQL is version 14.13 and must be 15 or newer"}},
		{"everything", func(s *server) { *s = server{version: "9", encoding: "SQL_ASCII", standby: true, login: "own er"} }, []string{
			"PostgreSQL is version 9", "the encoding of the database is SQL_ASCII", "the server is a standby",
			`"own er" may not create tables`, `"own er" may not create roles`,
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := good
			test.change(&s)
			if got := s.missingForOwner(); !slices.EqualFunc(got, test.want, strings.HasPrefix) {
				t.Errorf("got %q", got)
			}
		})
	}
}
