package config

import (
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Variable is one row of the table of variables in docs/reference/configuration.md.
type Variable struct {
	Name      string
	Processes []string // the processes that read it, in the order api … standalone
	Default   string   // as an operator would write it, "required" or "none"
	Bounds    string   // unit and what is accepted
	Meaning   string
	Live      bool // it may change while the processes run
}

// ReadBy reports whether a process reads the variable.
func (v Variable) ReadBy(process string) bool { return slices.Contains(v.Processes, process) }

// Variables lists every variable once, in the order in which the
// configuration declares them.
func Variables() []Variable {
	var rows []Variable
	defaults := make(map[string][]string) // of a variable, in the order of its processes
	for _, process := range []any{API{}, Promoter{}, Worker{}, Migrate{}, Standalone{}} {
		name := processName(process)
		for _, v := range variablesIn(reflect.TypeOf(process)) {
			at := slices.IndexFunc(rows, func(row Variable) bool { return row.Name == v.name })
			if at < 0 {
				at = len(rows)
				rows = append(rows, Variable{Name: v.name, Bounds: v.bounds(), Meaning: v.meaning, Live: v.live != ""})
			}
			if !slices.Contains(rows[at].Processes, name) {
				rows[at].Processes = append(rows[at].Processes, name)
				defaults[v.name] = append(defaults[v.name], v.defaultText(name))
			}
		}
	}
	for i := range rows {
		rows[i].Default = joinDefaults(rows[i].Processes, defaults[rows[i].Name])
	}
	return rows
}

// joinDefaults is the default of the first process, and after it that of each
// process which has another.
func joinDefaults(processes, defaults []string) string {
	text := defaults[0]
	for i, process := range processes {
		if defaults[i] != defaults[0] {
			text += "; " + process + ": " + defaults[i]
		}
	}
	return text
}

// Dump is the configuration as attributes named like the variables, for the
// one line that a process logs when it starts. Secrets are set or unset, and URLs
// have lost their passwords.
func Dump[T process](loaded T) []slog.Attr {
	var attrs []slog.Attr
	seen := make(map[string]bool)
	eachField(reflect.ValueOf(loaded), func(v variable, value reflect.Value) {
		if !seen[v.name] {
			seen[v.name] = true
			attrs = append(attrs, slog.Any(v.name, printable(value.Interface())))
		}
	})
	return attrs
}

// printable is a value as the operator would have written it.
func printable(value any) any {
	switch value := value.(type) {
	case Secret:
		return setOrUnset(value)
	case []Secret:
		return setOrUnset(slices.Concat(value, []Secret{{}})[0])
	case time.Duration:
		return value.Milliseconds()
	case []netip.Prefix:
		return fmt.Sprint(value)
	default:
		return value
	}
}

func setOrUnset(s Secret) string {
	if s.Reveal() == "" {
		return "unset"
	}
	return "set"
}

// variable is what the tags of a field say.
type variable struct {
	name       string
	meaning    string
	kind       reflect.Type
	def        string // the default; only if optional
	optional   bool
	standalone *string // the default in standalone where it is another
	min, max   int64
	schemes    []string // of a URL
	oneOf      []string // of a text
	form       string   // "address" for host:port
	live       string   // the unit of one that may change while the processes run
}

// variableOf reads the tags of a field; it says no for a field that is a
// group of others.
func variableOf(field reflect.StructField) (variable, bool) {
	name, ok := field.Tag.Lookup("env")
	if !ok {
		return variable{}, false
	}
	v := variable{name: name, meaning: field.Tag.Get("doc"), kind: field.Type, form: field.Tag.Get("form"), live: field.Tag.Get("live")}
	v.def, v.optional = field.Tag.Lookup("default")
	if def, ok := field.Tag.Lookup("standalone"); ok {
		v.standalone = &def
	}
	v.min, _ = strconv.ParseInt(field.Tag.Get("min"), 10, 64)
	v.max, _ = strconv.ParseInt(field.Tag.Get("max"), 10, 64)
	v.schemes = list(field.Tag.Get("scheme"))
	v.oneOf = list(field.Tag.Get("oneof"))
	return v, true
}

// eachField visits every field with a variable, groups included.
func eachField(in reflect.Value, visit func(variable, reflect.Value)) {
	for i := range in.NumField() {
		if v, ok := variableOf(in.Type().Field(i)); ok {
			visit(v, in.Field(i))
			continue
		}
		eachField(in.Field(i), visit)
	}
}

func variablesIn(process reflect.Type) []variable {
	var found []variable
	eachField(reflect.Zero(process), func(v variable, _ reflect.Value) { found = append(found, v) })
	return found
}

// fallback is the default in a process, and whether there is one.
func (v variable) fallback(process string) (string, bool) {
	if process == "standalone" && v.standalone != nil {
		return *v.standalone, true
	}
	return v.def, v.optional
}

// defaultText is the default in a process, in words.
func (v variable) defaultText(process string) string {
	switch text, known := v.fallback(process); {
	case !known:
		return "required"
	case text == "":
		return "none"
	default:
		return text
	}
}

// list splits at commas and drops spaces and empty parts.
func list(text string) []string {
	var parts []string
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, part)
		}
	}
	return parts
}
