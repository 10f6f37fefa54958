package job

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres/columns"
)

// A setting is spelled once, in Spec or Policy with its column: the functions here
// carry all of them between a definition and a row, so that a new one is not
// forgotten in any statement's row.

// pair is a setting and the field of a row that holds its column; or, with below, a
// group of settings.
type pair struct {
	setting, column int
	below           []pair
	read, write     func(to, from reflect.Value) error
}

// pairs are found once for each type of definition and of row: finding them costs
// many times what copying does.
var pairs sync.Map // of [2]reflect.Type to []pair

// readColumns fills a definition from a row; both are given by their addresses. Of
// columns that cannot be read it reports the last, and reads the others.
func readColumns(definition, row any) error {
	to, from := reflect.ValueOf(definition).Elem(), reflect.ValueOf(row).Elem()
	return readPairs(to, from, pairsOf(to.Type(), from.Type()))
}

func readPairs(to, from reflect.Value, all []pair) (unreadable error) {
	for i := range all {
		p := &all[i]
		var err error
		if p.below != nil {
			err = readPairs(to.Field(p.setting), from, p.below)
		} else if err = p.read(to.Field(p.setting), from.Field(p.column)); err != nil {
			err = fmt.Errorf("column %s: %w", from.Type().Field(p.column).Name, err)
		}
		if err != nil {
			unreadable = err
		}
	}
	return unreadable
}

// writeColumns fills the parameters of a statement from a definition; both are given
// by their addresses.
func writeColumns(row, definition any) error {
	to, from := reflect.ValueOf(row).Elem(), reflect.ValueOf(definition).Elem()
	return writePairs(to, from, pairsOf(from.Type(), to.Type()))
}

func writePairs(to, from reflect.Value, all []pair) error {
	for _, p := range all {
		if p.below != nil {
			if err := writePairs(to, from.Field(p.setting), p.below); err != nil {
				return err
			}
			continue
		}
		if err := p.write(to.Field(p.column), from.Field(p.setting)); err != nil {
			return fmt.Errorf("column %s: %w", to.Type().Field(p.column).Name, err)
		}
	}
	return nil
}

func pairsOf(definition, row reflect.Type) []pair {
	key := [2]reflect.Type{definition, row}
	if found, ok := pairs.Load(key); ok {
		return found.([]pair)
	}
	found := findPairs(definition, row)
	pairs.Store(key, found)
	return found
}

// findPairs panics where a row lacks a column: its statement does not name it.
func findPairs(definition, row reflect.Type) (all []pair) {
	for i := range definition.NumField() {
		field := definition.Field(i)
		column, tagged := field.Tag.Lookup("column")
		if !tagged {
			all = append(all, pair{setting: i, below: findPairs(field.Type, row)})
			continue
		}
		in, ok := row.FieldByName(camel(column))
		if !ok {
			panic(fmt.Sprintf("%v has no column %s, which holds %v.%s", row, column, definition, field.Name))
		}
		all = append(all, pair{setting: i, column: in.Index[0], read: reader(field.Type, in.Type), write: writer(in.Type, field.Type)})
	}
	return all
}

// camel is a column's name as sqlc writes it in Go.
func camel(column string) string {
	var name strings.Builder
	for word := range strings.SplitSeq(column, "_") {
		name.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return name.String()
}

// The types whose columns have another form than they have.
var (
	typeOfJSON     = reflect.TypeFor[json.RawMessage]()
	typeOfDuration = reflect.TypeFor[Duration]() // in milliseconds
	typeOfTime     = reflect.TypeFor[*time.Time]()
	typeOfRetry    = reflect.TypeFor[Retry]()
)

func reader(setting, column reflect.Type) func(to, from reflect.Value) error {
	switch {
	case setting == typeOfTime:
		return func(to, from reflect.Value) error {
			to.Set(reflect.ValueOf(columns.UTC(from.Interface().(*time.Time))))
			return nil
		}
	case column.Kind() == reflect.Pointer:
		inner := reader(setting, column.Elem())
		return func(to, from reflect.Value) error {
			if from.IsNil() {
				return nil
			}
			return inner(to, from.Elem())
		}
	case setting == typeOfRetry:
		return func(to, from reflect.Value) error {
			return to.Addr().Interface().(*Retry).ReadStored(from.Bytes())
		}
	case column == typeOfJSON && setting != typeOfJSON:
		return func(to, from reflect.Value) error {
			if from.Len() <= len("[]") {
				return nil // nearly all jobs name no calendar
			}
			return json.Unmarshal(from.Bytes(), to.Addr().Interface())
		}
	case setting == typeOfDuration:
		return func(to, from reflect.Value) error { to.SetInt(from.Int() * int64(time.Millisecond)); return nil }
	case setting.Kind() == reflect.String:
		return func(to, from reflect.Value) error { to.SetString(from.String()); return nil }
	case setting.Kind() == reflect.Int || setting.Kind() == reflect.Int64:
		return func(to, from reflect.Value) error { to.SetInt(from.Int()); return nil }
	}
	return func(to, from reflect.Value) error { to.Set(from); return nil }
}

func writer(column, setting reflect.Type) func(to, from reflect.Value) error {
	switch {
	case column == setting:
		return func(to, from reflect.Value) error { to.Set(from); return nil }
	case column.Kind() == reflect.Pointer:
		inner := writer(column.Elem(), setting)
		return func(to, from reflect.Value) error {
			if from.IsZero() {
				return nil
			}
			to.Set(reflect.New(column.Elem()))
			return inner(to.Elem(), from)
		}
	case column == typeOfJSON:
		return func(to, from reflect.Value) error {
			if from.Kind() == reflect.Slice && from.IsNil() {
				from = reflect.MakeSlice(setting, 0, 0)
			}
			text, err := json.Marshal(from.Interface())
			to.SetBytes(text)
			return err
		}
	case setting == typeOfDuration:
		return func(to, from reflect.Value) error { to.SetInt(from.Int() / int64(time.Millisecond)); return nil }
	case setting.Kind() == reflect.String:
		return func(to, from reflect.Value) error { to.SetString(from.String()); return nil }
	}
	return func(to, from reflect.Value) error { to.SetInt(from.Int()); return nil }
}

// Rows stop here: nulls, enumerations and JSON columns become domain values.

func fromRow(r *db.ScheduledJob) (Job, error) {
	j := Job{
		ID: r.ID, TenantID: r.TenantID, Version: int(r.Version), Set: r.SetName, CreatedBy: r.CreatedBy,
		CreatedAt: r.CreatedAt.UTC(), UpdatedAt: r.UpdatedAt.UTC(), AnchorAt: r.AnchorAt.UTC(),
		Status: Status(r.Status), StatusReason: r.StatusReason,
		StatusBy: r.StatusBy, StatusAt: r.StatusAt.UTC(), PausedUntil: columns.UTC(r.PausedUntil),
		NextExecutionAt: columns.UTC(r.NextExecutionAt), LastExecutionAt: columns.UTC(r.LastExecutionAt), ExecutionCount: r.ExecutionCount,
		AuditedAt: columns.UTC(r.AuditedAt), AuditDifference: r.AuditDifference,
	}
	if err := readColumns(&j.Spec, r); err != nil {
		return Job{}, fmt.Errorf("read job %s: %w", r.ID, err)
	}
	return j, nil
}

// Read fills the policy from a row of any statement, given by its address. The row
// has a column for each setting.
func (p *Policy) Read(row any) error { return readColumns(p, row) }
