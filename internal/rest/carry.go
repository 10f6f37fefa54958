package rest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/schedule"
)

// The settings of a job have one name each: that of their field in the contract,
// which the domain's field has as its JSON name (or in the tag api, where it is
// stored under another). carry goes by these names, so that a new setting needs no
// line here. The conditions of lists and of bulk calls reach the domain's filters in
// the same way.

// carry fills the settings of a struct of the contract from one of the domain, or the
// reverse; both are given by their addresses. The contract's null and absent values
// are the domain's zero values. It reports the last value that does not read, and
// carries the others.
func carry(to, from any) error {
	target, source := reflect.ValueOf(to).Elem(), reflect.ValueOf(from).Elem()
	key := [2]reflect.Type{target.Type(), source.Type()}
	found, ok := structCarriers.Load(key)
	if !ok {
		found = structCarrier(key[0], key[1])
		structCarriers.Store(key, found)
	}
	return found.(carrier)(target, source)
}

// mustCarry is carry from the domain to the contract, where every value reads.
func mustCarry(to, from any) {
	if err := carry(to, from); err != nil {
		panic(fmt.Sprintf("a setting cannot be shown: %v", err))
	}
}

// carrier fills a value of one type from one of another.
type carrier func(to, from reflect.Value) error

// structCarriers are made once for two types: that costs many times what carrying
// does.
var structCarriers sync.Map // of [2]reflect.Type to carrier

func structCarrier(to, from reflect.Type) carrier {
	type twins struct {
		to, from place
		carry    carrier
	}
	var all []twins
	names := namesOf(from, nil)
	for name, at := range namesOf(to, nil) {
		if source, ok := names[name]; ok {
			target := to.FieldByIndex(at)
			optional := strings.HasSuffix(target.Tag.Get("json"), ",omitempty")
			all = append(all, twins{at, source, valueCarrier(target.Type, from.FieldByIndex(source).Type, optional)})
		}
	}
	return func(to, from reflect.Value) (unreadable error) {
		for _, f := range all {
			if err := f.carry(f.to.in(to), f.from.in(from)); err != nil {
				unreadable = err
			}
		}
		return unreadable
	}
}

// place is where a field is in a struct.
type place []int

// in is the field of a struct. Nearly all fields are in none of its groups.
func (p place) in(of reflect.Value) reflect.Value {
	if len(p) == 1 {
		return of.Field(p[0])
	}
	return of.FieldByIndex(p)
}

// namesOf are the contract's names of a struct's fields. The domain keeps some in
// groups, which have no name there: those that are embedded, and those whose fields
// name themselves.
func namesOf(t reflect.Type, below []int) map[string][]int {
	names := map[string][]int{}
	for i := range t.NumField() {
		field, index := t.Field(i), append(append([]int{}, below...), i)
		if field.Anonymous || grouped(field.Type) {
			for name, at := range namesOf(field.Type, index) {
				names[name] = at
			}
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if own := field.Tag.Get("api"); own != "" {
			name = own
		}
		names[name] = index
	}
	return names
}

func grouped(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && t.NumField() > 0 && t.Field(0).Tag.Get("api") != ""
}

// The types that have another form in the contract than in the domain.
var (
	typeOfDuration = reflect.TypeFor[job.Duration]()
	typeOfJSON     = reflect.TypeFor[json.RawMessage]()
	typeOfConfig   = reflect.TypeFor[api.JobConfig]()
)

// valueCarrier knows that the contract has pointers for what may be absent or null. A field
// that may not be absent is null for a zero value, which is how the domain says "none".
func valueCarrier(to, from reflect.Type, optional bool) carrier {
	switch {
	case to == typeOfConfig && from == typeOfConfig:
		return plainCarrier(to, from)
	case to == typeOfConfig:
		return func(to, from reflect.Value) error { to.Set(reflect.ValueOf(viewConfig(from.Bytes()))); return nil }
	case from == typeOfConfig:
		return func(to, from reflect.Value) error {
			to.SetBytes(rawConfig(from.Interface().(api.JobConfig)))
			return nil
		}
	case from.Kind() == reflect.Pointer:
		inner := valueCarrier(to, from.Elem(), true) // what it points to is a value, zero or not
		return func(to, from reflect.Value) error {
			if from.IsNil() {
				return nil
			}
			return inner(to, from.Elem())
		}
	case to.Kind() == reflect.Pointer:
		inner := valueCarrier(to.Elem(), from, optional)
		return func(to, from reflect.Value) error {
			if !optional && from.IsZero() {
				return nil
			}
			to.Set(reflect.New(to.Type().Elem()))
			return inner(to.Elem(), from)
		}
	case to.Kind() == reflect.Slice && to != typeOfJSON:
		inner := valueCarrier(to.Elem(), from.Elem(), optional)
		return func(to, from reflect.Value) (err error) {
			to.Set(reflect.MakeSlice(to.Type(), from.Len(), from.Len()))
			for i := 0; i < from.Len() && err == nil; i++ {
				err = inner(to.Index(i), from.Index(i))
			}
			return err
		}
	}
	return plainCarrier(to, from)
}

// plainCarrier panics for types of which none is made of the other: a test carries
// all there are.
func plainCarrier(to, from reflect.Type) carrier {
	switch {
	case to == typeOfDuration:
		return func(to, from reflect.Value) error {
			if from.String() == "" {
				return nil
			}
			interval, err := schedule.ParseInterval(from.String())
			to.SetInt(int64(interval))
			return err
		}
	case from == typeOfDuration:
		return func(to, from reflect.Value) error { to.SetString(job.Duration(from.Int()).ISO()); return nil }
	case to.Kind() == reflect.String && from.Kind() == reflect.String:
		return func(to, from reflect.Value) error { to.SetString(from.String()); return nil }
	case to == from:
		return func(to, from reflect.Value) error { to.Set(from); return nil }
	case to.Kind() == reflect.Struct && from.Kind() == reflect.Struct:
		return structCarrier(to, from)
	}
	panic(fmt.Sprintf("the contract's and the domain's type of a setting differ: %v, %v", to, from))
}
