package config

import (
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Setting is a variable whose value the processes also take while they run: a whole number
// or the log level.
type Setting struct {
	Name    string
	Meaning string
	Unit    string
	Default string
	// Value is the one that the process was started with, its environment's or the default;
	// empty where the process does not read the variable.
	Value    string
	Min, Max *int     // of a number
	OneOf    []string // of a level

	variable variable
}

// Settings lists all settings, with the values of a loaded configuration.
func Settings[T process](loaded T) []Setting {
	var all []Setting
	for _, process := range []any{API{}, Promoter{}, Worker{}} {
		for _, v := range variablesIn(reflect.TypeOf(process)) {
			if v.live != "" && !slices.ContainsFunc(all, func(s Setting) bool { return s.Name == v.name }) {
				all = append(all, settingOf(v))
			}
		}
	}
	eachField(reflect.ValueOf(loaded), func(v variable, value reflect.Value) {
		at := slices.IndexFunc(all, func(s Setting) bool { return s.Name == v.name })
		if at >= 0 && v.live != "" {
			all[at].Value = written(value.Interface())
		}
	})
	return all
}

func settingOf(v variable) Setting {
	s := Setting{Name: v.name, Meaning: v.meaning, Unit: v.live, Default: v.def, variable: v}
	if v.kind == reflect.TypeFor[slog.Level]() {
		s.OneOf = []string{"debug", "info", "warn", "error"}
	} else {
		least, most := int(v.min), int(v.max)
		s.Min, s.Max = &least, &most
	}
	return s
}

// Parse reads a value as the environment would have it; a level is its number in package
// slog. The error says why the value is refused, and what would be right.
func (s Setting) Parse(text string) (int, error) {
	value, err := s.variable.parse(text)
	if err != nil {
		return 0, fmt.Errorf("%w; give %s", err, s.variable.right())
	}
	if level, ok := value.(slog.Level); ok {
		return int(level), nil
	}
	whole, _ := value.(int)
	if err := enough(s.Name, whole); err != nil {
		return 0, err
	}
	return whole, nil
}

// Written is a value as Parse takes it, in the one form in which it is kept.
func (s Setting) Written(value int) string {
	if s.variable.kind == reflect.TypeFor[slog.Level]() {
		return written(slog.Level(value))
	}
	return written(value)
}

func written(value any) string {
	if level, ok := value.(slog.Level); ok {
		return strings.ToLower(level.String())
	}
	whole, _ := value.(int)
	return strconv.Itoa(whole)
}
