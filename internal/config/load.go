package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// process is each type that Load fills.
type process interface {
	API | Promoter | Worker | Migrate | Standalone
}

// Load fills the configuration of a process from lookup, which is
// os.LookupEnv in production. The error, if any, names every variable that is
// missing or wrong, why, and what would be right; it repeats no secret.
func Load[T process](lookup func(name string) (string, bool)) (T, error) {
	var loaded T
	found := &problems{process: processName(loaded)}
	fill(reflect.ValueOf(&loaded).Elem(), lookup, found)
	if api, ok := any(loaded).(API); ok {
		checkAuthority(api.Tokens, found)
	}
	if len(found.lines) == 0 {
		check(any(loaded), found)
	}
	if len(found.lines) > 0 {
		var none T
		return none, found
	}
	return loaded, nil
}

// problems is everything that is wrong with a configuration, as one error.
type problems struct {
	process string
	lines   []string
}

// add notes a problem once: in standalone, several parts read one variable.
func (p *problems) add(name, what string) {
	line := name + ": " + what
	for _, known := range p.lines {
		if known == line {
			return
		}
	}
	p.lines = append(p.lines, line)
}

// name says whether a variable is among the problems.
func (p *problems) name(variable string) bool {
	return slices.ContainsFunc(p.lines, func(line string) bool { return strings.HasPrefix(line, variable+":") })
}

// Error lists the problems, one a line.
func (p *problems) Error() string {
	return fmt.Sprintf("configuration of %s has %d problem(s):\n  %s", p.process, len(p.lines), strings.Join(p.lines, "\n  "))
}

func processName(process any) string {
	return strings.ToLower(reflect.TypeOf(process).Name())
}

// fill sets every field of a struct, and of the structs in it, that has a
// variable.
func fill(into reflect.Value, lookup func(string) (string, bool), found *problems) {
	for i := range into.NumField() {
		field := into.Type().Field(i)
		v, ok := variableOf(field)
		if !ok {
			fill(into.Field(i), lookup, found)
			continue
		}
		if value := v.read(lookup, found); value != nil {
			into.Field(i).Set(reflect.ValueOf(value))
		}
	}
}

// read is the parsed value of a variable or its default, and nil when there
// is neither or the value is wrong, which is then among the problems unless
// the variable may be left out.
func (v variable) read(lookup func(string) (string, bool), found *problems) any {
	text, _ := lookup(v.name)
	if text == "" {
		var known bool
		if text, known = v.fallback(found.process); !known {
			found.add(v.name, "is not set; give "+v.right())
			return nil
		}
	}
	if text == "" {
		return nil
	}
	value, err := v.parse(text)
	if err != nil {
		found.add(v.name, err.Error()+"; give "+v.right())
		return nil
	}
	return value
}
