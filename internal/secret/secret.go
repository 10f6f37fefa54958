// Package secret keeps what a tenant's jobs need and nobody may read.
//
// It owns a tenant's named secrets (written, never read back), the placeholders of a
// job's configuration for them and for values of the run ({{secret:name}},
// {{run:attempt}}), the credentials that stand in a configuration itself, and how all of
// these come to the one attempt that needs them and are taken out of what it leaves
// behind. It refuses to hand a value to the API: its role may not even read the sealed
// ones. Keys and envelopes are package keyring's.
package secret

import (
	"regexp"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/secret/keyring"
)

const (
	maxValue       = 64 << 10 // bytes
	maxDescription = 200
)

// saneName is what a secret may be called, so that a reference to it can be
// told from the text around it.
var saneName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$`)

// Secret is what is shown of one: all but its value.
type Secret struct {
	ID          uuid.UUID
	TenantID    uuid.UUID
	Name        string
	Description string
	Version     int32  // counts the values
	KeyID       string // of the key that the value is sealed with
	CreatedBy   string
	CreatedAt   time.Time
	UpdatedBy   string
	UpdatedAt   time.Time
}

// Draft is what a tenant says of a secret.
type Draft struct {
	Name        string
	Value       keyring.Text // 1 to 65,536 bytes
	Description *string      // nil leaves that of an earlier value as it is
	IfVersion   int          // only where the stored one has this version; 0: whatever is stored
	Replaces    bool         // only where there is one
}

// Validate lists everything that is wrong with a draft.
func (d Draft) Validate() []fault.Field {
	var fields []fault.Field
	wrong := func(path, rule, message string) {
		fields = append(fields, fault.Field{Path: path, Rule: rule, Message: message})
	}
	if !saneName.MatchString(d.Name) {
		wrong("name", "pattern", "must have 1 to 64 letters, digits, _, . and -, the first of them none of . and -")
	}
	if n := len(d.Value.Reveal()); n < 1 || n > maxValue {
		wrong("value", "bounds", "must have 1 to 65536 bytes")
	}
	if d.Description != nil && utf8.RuneCountInString(*d.Description) > maxDescription {
		wrong("description", "bounds", "must have at most 200 characters")
	}
	return fields
}

// binding is what a secret's value is bound to.
func binding(tenant, id uuid.UUID, name string) keyring.Binding {
	return keyring.Binding{Tenant: tenant, Object: "secret", ID: id, Field: name}
}

// NotFound is the answer for a secret that is not there, or is not the
// caller's.
func NotFound() error {
	return fault.New(fault.NotFound, fault.CodeSecretNotFound, "there is no secret with this name")
}

// noKeys is the answer where the operator gave no key.
func noKeys() error {
	return fault.New(fault.Unavailable, fault.CodeSecretsNotConfigured, "secrets cannot be kept: the operator has not configured SECRETS_KEYS")
}
