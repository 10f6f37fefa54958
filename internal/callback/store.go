package callback

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// versionKey names a job version, which never changes.
type versionKey struct {
	job     uuid.UUID
	version int
}

// versions reads job versions of all tenants.
type versions struct{ db *postgres.DB }

// rules are those by which failed attempts are repeated, and where the secrets of a
// version stand.
type rules struct {
	Retry  job.Retry       `json:"retryConfig"`
	Limit  job.Limit       `json:"executionTimeout"`
	Config json.RawMessage `json:"config"`
	Sealed []byte          `json:"-"` // the credentials that stand masked in Config; nil: none
}

// rules reads the rules of versions. A version that does not exist or cannot be read has
// none: nothing is repeated.
func (v versions) rules(ctx context.Context, keys []versionKey) (map[versionKey]rules, error) {
	out := make(map[versionKey]rules, len(keys))
	var p db.ListJobVersionsByKeysParams
	for _, k := range keys {
		if _, twice := out[k]; !twice {
			out[k] = rules{}
			p.JobIds, p.Versions = append(p.JobIds, k.job), append(p.Versions, int32(k.version))
		}
	}
	rows, err := db.New(v.db.Pool()).ListJobVersionsByKeys(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("read job versions: %w", postgres.Fault(err))
	}
	for _, r := range rows {
		var found rules
		if err := json.Unmarshal(r.Spec, &found); err == nil {
			found.Sealed = r.Sealed
			out[versionKey{r.JobID, int(r.Version)}] = found
		}
	}
	return out, nil
}
