// Package function keeps the WebAssembly modules that a tenant uploads.
//
// It owns a tenant's functions: each a name with versions, which never change, so that
// what a worker compiled of one stays good; how many a tenant may have; and the module
// that a job of type wasm names. It refuses to hand bytes back to the API, and to judge
// them: packages executor/wasm and runner do.
package function

import (
	"fmt"
	"regexp"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/fault"
)

// MaxModule bounds a module, in bytes.
const MaxModule = 8 << 20

// The bounds of a tenant, and how many versions of a function are kept beside those that
// jobs name.
const (
	maxFunctions = 100
	maxBytes     = 256 << 20
	keptVersions = 20
)

// saneName is what a function may be called.
var saneName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$`)

// Function is a name, with what is known of its newest version.
type Function struct {
	ID        uuid.UUID
	TenantID  uuid.UUID
	Name      string
	Version   int32
	Digest    string // SHA-256 of the module, in hexadecimal digits
	SizeBytes int32
	CreatedBy string
	CreatedAt time.Time
	UpdatedBy string
	UpdatedAt time.Time
}

// Version is one version of a function.
type Version struct {
	Version   int32
	Digest    string
	SizeBytes int32
	CreatedBy string
	CreatedAt time.Time
}

// Module names a version of a function as a worker needs it.
type Module struct {
	FunctionID uuid.UUID
	Version    int32
	Digest     string
}

// SaneName reports whether a function may have this name.
func SaneName(name string) bool { return saneName.MatchString(name) }

// NotFound is the answer for a function that is not there, or is not the caller's.
func NotFound() error {
	return fault.New(fault.NotFound, fault.CodeFunctionNotFound, "there is no function with this name")
}

// exceeded refuses what would take the tenant beyond a bound.
func exceeded(limit string, most int64, what string, at time.Time) error {
	return fault.Exceeded(fault.Limit{Name: limit, Value: most}, fmt.Sprintf("a tenant may have %d %s: delete functions that are not needed", most, what), at)
}
