// Package definition reads what a run needs of the versions of jobs, for all who run
// executions or end them: workers, the workers of tenants, and callbacks.
package definition

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// Key names a version of a job, which never changes.
type Key struct {
	Job     uuid.UUID
	Version int
}

// Definition is a version of a job as a run needs it. Where Err is not nil it cannot be
// read, and nothing else is set.
type Definition struct {
	Name   string
	Type   string
	Config json.RawMessage
	Retry  job.Retry
	Limit  job.Limit // of an execution
	Sealed []byte    // the credentials that stand masked in Config; nil: none
	Err    error
}

// Read reads the definitions of all tenants' versions. A version that does not exist is not
// in the answer. One that cannot be read is no error of the others.
func Read(ctx context.Context, from *postgres.DB, keys []Key) (map[Key]Definition, error) {
	out := make(map[Key]Definition, len(keys))
	asked := make(map[Key]bool, len(keys))
	var p db.ListDefinitionsParams
	for _, k := range keys {
		if !asked[k] {
			asked[k] = true
			p.JobIds, p.Versions = append(p.JobIds, k.Job), append(p.Versions, int32(k.Version))
		}
	}
	rows, err := db.New(from.Pool()).ListDefinitions(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("read the definitions of jobs: %w", postgres.Fault(err))
	}
	for _, r := range rows {
		out[Key{r.JobID, int(r.Version)}] = decoded(r)
	}
	return out, nil
}

func decoded(r db.ListDefinitionsRow) Definition {
	d := Definition{Name: r.Name, Type: r.JobType, Config: r.Config, Sealed: r.Sealed}
	seconds, err := strconv.Atoi(r.ExecutionTimeout)
	if err == nil {
		err = d.Retry.ReadStored(r.Retry)
	}
	if err == nil && d.Type == "" {
		err = errors.New("it names no type")
	}
	if err != nil {
		return Definition{Err: err}
	}
	d.Limit = job.Limit(seconds)
	return d
}
