// Package apikey is the second way in: long-lived keys for programs, made by a
// tenant for itself.
//
// It owns the form of a key, what one may be allowed (no more than who makes
// it, and never to make keys itself), its expiry, its rotation, and who a
// request with one acts for. It keeps a hash and never the key: it is shown
// once. It refuses to write HTTP answers.
package apikey

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/identity"
)

const (
	// mark begins every key, for people and for scanners that look for keys in
	// places where none should be.
	mark = "sched_"
	// ids is the length of the part that names key and tenant, 32 bytes, and
	// secret that of the random part, 32 bytes too.
	ids, secret = 43, 43
	// shown is how much of a key is kept to tell it by: the mark and nine bytes
	// of its id.
	shown = len(mark) + 12
	// MaxGrace is how long a replaced key goes on working at most.
	MaxGrace = 24 * time.Hour
)

// Spec is what somebody asks for.
type Spec struct {
	Name      string // 1 to 200 characters
	Scopes    []identity.Permission
	ExpiresAt *time.Time // nil: never
}

// Key is a key as it may be shown.
type Key struct {
	Spec
	ID, TenantID uuid.UUID
	Prefix       string // the first characters of the key
	CreatedBy    string
	CreatedAt    time.Time
	RotatedAt    *time.Time
	LastUsedAt   *time.Time // as much as a minute old
}

// Validate lists what is wrong with a key that somebody asks for now.
func Validate(spec Spec, who identity.Principal, now time.Time) []fault.Field {
	var fields []fault.Field
	for i, scope := range spec.Scopes {
		path := fmt.Sprintf("scopes[%d]", i)
		switch {
		case !scope.Known():
			fields = append(fields, fault.Field{Path: path, Rule: "enum", Message: fmt.Sprintf("%.60q is not a permission, such as jobs:read; /docs lists them", scope)})
		case withheld(scope):
			fields = append(fields, fault.Field{Path: path, Rule: "withheld", Message: "cannot be given to a key: making keys and administering tenants is for people"})
		case !who.May(scope):
			fields = append(fields, fault.Field{Path: path, Rule: "exceeds", Message: "is a permission that you do not have"})
		}
	}
	if spec.ExpiresAt != nil && !spec.ExpiresAt.After(now) {
		fields = append(fields, fault.Field{Path: "expiresAt", Rule: "future", Message: "has passed already; give a time in the future, or none"})
	}
	return fields
}

// withheld are the permissions that no key has. A key that could make keys
// would outlive its own revocation.
func withheld(scope identity.Permission) bool {
	return scope == "keys:write" || strings.HasPrefix(string(scope), "tenants:")
}

// exceeds says that a key may do more than somebody.
func exceeds(scopes []identity.Permission, who identity.Principal) bool {
	return slices.ContainsFunc(scopes, func(scope identity.Permission) bool { return !who.May(scope) })
}

// mint makes the text of a key of a tenant. Both ids stand in it, so that
// looking it up is a look into that one tenant's rows.
func mint(id, tenant uuid.UUID) string {
	random := make([]byte, 32)
	_, _ = rand.Read(random) // it never fails; see its documentation
	names := slices.Concat(id[:], tenant[:])
	return mark + base64.RawURLEncoding.EncodeToString(names) + base64.RawURLEncoding.EncodeToString(random)
}

// read takes the ids out of a key. Only one text stands for a key: what a lax
// decoder would also read is refused.
func read(key string) (id, tenant uuid.UUID, ok bool) {
	if len(key) != len(mark)+ids+secret || !strings.HasPrefix(key, mark) {
		return id, tenant, false
	}
	names, err := base64.RawURLEncoding.Strict().DecodeString(key[len(mark) : len(mark)+ids])
	if err != nil {
		return id, tenant, false
	}
	return uuid.UUID(names[:16]), uuid.UUID(names[16:]), true
}

func hash(key string) []byte {
	sum := sha256.Sum256([]byte(key))
	return sum[:]
}

// same compares in a time that does not depend on where they differ.
func same(a, b []byte) bool { return subtle.ConstantTimeCompare(a, b) == 1 }

// NotFound is the answer for a key that is not there, or is not the caller's.
func NotFound() error {
	return fault.New(fault.NotFound, fault.CodeAPIKeyNotFound, "there is no API key with this id")
}

func refused() error {
	return fault.New(fault.Unauthenticated, fault.CodeUnauthorized, "the API key is not valid: it was revoked or replaced, has expired, or never was one")
}
