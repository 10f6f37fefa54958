// Package callback takes what is told about attempts that await a callback: a target took
// the call and reports heartbeats, progress and the end later.
//
// It owns the token by which such a report names its attempt, the outcome that a report
// or a missing report means, and the answer to reports that come late or twice. It
// refuses to decide which statement moves an execution (package dispatch) and who may
// call how often (package rest).
package callback

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/dispatch"
	"github.com/scheduler-service/scheduler/internal/secret/keyring"
)

// Attempt is the attempt that a token names.
type Attempt struct {
	Tenant uuid.UUID
	dispatch.Fence
}

// Failure is why a target says that an attempt failed.
type Failure struct {
	Type    string // one of package executor's
	Message string
	Retry   *bool // nil leaves it to Type and the job
}

// Report is the end of an attempt, as its target tells it.
type Report struct {
	Result json.RawMessage // nil: none
	Err    *Failure        // nil: it succeeded
}

// ErrForeign is the answer to a token that is none of ours.
var ErrForeign = errors.New("the token opens no attempt")

// sealedBytes is the length of what a token seals: the attempt and its lease token.
const sealedBytes = 4 + 16

// Token is the opaque token of an attempt for its target: tenant and execution id, then the
// attempt and its lease token, encrypted.
func Token(keys *keyring.Ring, a Attempt) (string, error) {
	plain := binary.BigEndian.AppendUint32(make([]byte, 0, sealedBytes), uint32(a.Attempt))
	sealed, err := keys.Seal(bound(a.Tenant, a.ID), keyring.NewText(string(append(plain, a.Token[:]...))))
	if err != nil {
		return "", err
	}
	open := append(append(make([]byte, 0, 32+len(sealed)), a.Tenant[:]...), a.ID[:]...)
	return base64.RawURLEncoding.EncodeToString(append(open, sealed...)), nil
}

// Open reads a token; the error is ErrForeign. A key that is no longer in the ring opens
// nothing any more.
func Open(keys *keyring.Ring, token string) (Attempt, error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(raw) < 32 {
		return Attempt{}, ErrForeign
	}
	a := Attempt{Tenant: uuid.UUID(raw[:16])}
	a.ID = uuid.UUID(raw[16:32])
	opened, err := keys.Open(bound(a.Tenant, a.ID), raw[32:])
	if plain := opened.Reveal(); err == nil && len(plain) == sealedBytes {
		a.Attempt, a.Token = int(binary.BigEndian.Uint32([]byte(plain[:4]))), uuid.UUID([]byte(plain[4:]))
		return a, nil
	}
	return Attempt{}, ErrForeign
}

func bound(tenant, execution uuid.UUID) keyring.Binding {
	return keyring.Binding{Tenant: tenant, Object: "callback", ID: execution}
}
