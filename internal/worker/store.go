package worker

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// versions reads job versions of all tenants. A version that does not exist is not in
// the answer.
type versions struct{ db *postgres.DB }

func (v versions) load(ctx context.Context, keys []versionKey) (map[versionKey]definition, error) {
	p := db.ListJobVersionsByKeysParams{JobIds: make([]uuid.UUID, len(keys)), Versions: make([]int32, len(keys))}
	for i, k := range keys {
		p.JobIds[i], p.Versions[i] = k.job, int32(k.version)
	}
	rows, err := db.New(v.db.Pool()).ListJobVersionsByKeys(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("read job versions: %w", postgres.Fault(err))
	}
	out := make(map[versionKey]definition, len(rows))
	for _, r := range rows {
		d := definition{sealed: r.Sealed, size: len(r.Spec) + len(r.Sealed) + 256}
		d.err = json.Unmarshal(r.Spec, &d.spec)
		out[versionKey{r.JobID, int(r.Version)}] = d
	}
	return out, nil
}
