// Package audit is the append-only record of who changed what.
//
// It owns who a change is recorded as (Call), reading the record, and the
// verification of its chain. It refuses to write: triggers of the changed
// tables do, in the transaction of the change (see the migrations), so that no
// code path can forget to and the API's role can forge nothing but the name of
// its caller.
package audit

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/scheduler-service/scheduler/internal/postgres"
)

// Kinds of actors.
const (
	User    = "user"
	APIKey  = "apiKey"
	Service = "service" // of the platform, over /internal
)

// Call is who makes the changes of a request.
type Call struct {
	Kind    string `json:"kind"`    // User, APIKey or Service
	Actor   string `json:"actor"`   // as its token or key names it
	Address string `json:"address"` // where the request came from
	Request string `json:"request"` // its id
	Action  string `json:"action"`  // the operation, as the contract names it
	// Executions is set where the operation is about runs themselves, so that
	// each run that it ends has an entry.
	Executions bool `json:"executions"`
}

// With makes the changes of transactions that begin with the context be
// recorded as the call's.
func With(ctx context.Context, c Call) context.Context {
	text, err := json.Marshal(c)
	if err != nil {
		return ctx // texts and booleans always encode
	}
	return postgres.WithCall(ctx, string(text))
}

// Entry is one recorded change.
type Entry struct {
	Shard      int   // of its tenant's record, from 0 to 7
	Seq        int64 // in its shard, from 1 without gaps
	At         time.Time
	ActorKind  string
	Actor      string
	Address    string
	RequestID  string
	Action     string
	ObjectType string
	ObjectID   string
	Change     string // "create", "update" or "delete"
	// Before and After hold what differs, and of a new or a deleted thing all of
	// it; nil where there was or is nothing.
	Before, After json.RawMessage
	Hash          []byte
}

// Filter selects entries. Empty fields select all.
type Filter struct {
	Actor, Action, ObjectType, ObjectID string
	From, To                            *time.Time // From included, To excluded
	After                               *Position  // the last one of the page before
	Limit                               int
}

// Position is a place in a list of entries, newest first.
type Position struct {
	At    time.Time
	Shard int
	Seq   int64
}

// shown is a recorded row as the API writes names.
func shown(row *string) json.RawMessage {
	if row == nil {
		return nil
	}
	var members map[string]json.RawMessage
	if json.Unmarshal([]byte(*row), &members) != nil {
		return json.RawMessage(`{"omitted":"is not readable"}`)
	}
	named := make(map[string]json.RawMessage, len(members))
	for name, value := range members {
		named[camel(name)] = value
	}
	out, err := json.Marshal(named)
	if err != nil {
		return nil
	}
	return out
}

// camel writes a column's name as the API's names are.
func camel(column string) string {
	parts := strings.Split(column, "_")
	for i := 1; i < len(parts); i++ {
		if parts[i] != "" {
			parts[i] = strings.ToUpper(parts[i][:1]) + parts[i][1:]
		}
	}
	return strings.Join(parts, "")
}
