// Package remote is the workers of tenants: programs in any language that claim executions of
// type remote through the API and run them outside our processes.
//
// It owns who such a worker is and what it may claim (executions of its tenant, of the functions
// that it registered), the claims that wait, and what a claim hands out. It refuses to
// decide which statement moves an execution (package dispatch), what a report means (package
// callback) and who may call how often (package rest).
package remote

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/executor/parameters"
	"github.com/scheduler-service/scheduler/internal/executor/remote"
	"github.com/scheduler-service/scheduler/internal/fault"
)

// Protocol is the version of the protocol that workers speak. It changes when a worker of the
// version before would go wrong.
const Protocol = 1

const (
	// maxWorkers and maxFunctions bound what a tenant has.
	maxWorkers   = 200
	maxFunctions = 500
	maxSchema    = 32 << 10 // bytes of JSON
)

// Function is a function of a tenant's workers.
type Function struct {
	Name, Description string
	Parameters        json.RawMessage // their JSON schema; {} takes any object
}

// Spec is what a worker says of itself.
type Spec struct {
	Name      string
	Functions []Function // at least one
	Slots     int        // how many executions it runs at once
	// Lease is how long it lives without a sign of life, and each of its attempts without a heartbeat.
	Lease time.Duration
}

// Worker is a registration that lives. A name may have several: each is a worker of its own.
type Worker struct {
	ID             uuid.UUID
	Name           string
	Functions      []string
	Slots, Running int
	Lease          time.Duration
	StartedAt      time.Time
	HeartbeatAt    time.Time
	ExpiresAt      time.Time
}

// Validate lists what is wrong with a worker's functions that the contract does not say.
func (s Spec) Validate() (faults []fault.Field) {
	names := map[string]bool{}
	for i, f := range s.Functions {
		path := fmt.Sprintf("functions[%d]", i)
		var schema parameters.Schema
		switch {
		case !remote.SaneName(f.Name):
			faults = append(faults, fault.Field{Path: path + ".name", Rule: "pattern", Message: "must have 1 to 200 letters, digits, _, ., / and -, the first of them a letter, a digit or _"})
		case names[f.Name]:
			faults = append(faults, fault.Field{Path: path + ".name", Rule: "duplicate", Message: "stands more than once"})
		case len(f.Parameters) > maxSchema:
			faults = append(faults, fault.Field{Path: path + ".parameters", Rule: "length", Message: fmt.Sprintf("must have at most %d bytes", maxSchema)})
		case json.Unmarshal(f.Parameters, &schema) != nil:
			faults = append(faults, fault.Field{Path: path + ".parameters", Rule: "type", Message: "is no JSON schema of parameters: type is a text, properties an object of schemas, required a list of names"})
		}
		names[f.Name] = true
	}
	return faults
}

func (s Spec) functionNames() []string {
	names := make([]string, len(s.Functions))
	for i, f := range s.Functions {
		names[i] = f.Name
	}
	slices.Sort(names)
	return names
}

// check lists what is wrong with parameters of a function, at paths below path.
func (f Function) check(path string, given json.RawMessage) []fault.Field {
	var schema parameters.Schema
	if json.Unmarshal(f.Parameters, &schema) != nil {
		return nil // of another version: the worker decides
	}
	return schema.Check(path, given)
}

// Gone is the answer to a worker that does not live, or is another tenant's.
func Gone() error {
	return fault.New(fault.NotFound, fault.CodeWorkerNotFound, "there is no living worker with this id: its lease ran out, or it was deregistered; register again")
}

func noKeys() error {
	return fault.New(fault.Unavailable, fault.CodeSecretsNotConfigured, "workers cannot claim: the operator has not configured SECRETS_KEYS, with which the tokens of attempts are sealed")
}
