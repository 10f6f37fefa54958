package worker

import (
	"context"
	"sync"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/job"
)

// maxSpecBytes bounds what a worker keeps of job versions: 64 MiB.
const maxSpecBytes = 64 << 20

// versionKey names a job version, which never changes.
type versionKey struct {
	job     uuid.UUID
	version int
}

// definition is a job version as a run needs it, or why it cannot be read.
type definition struct {
	spec   job.Spec
	sealed []byte // the credentials that stand masked in its config; nil is none
	err    error
	size   int
}

// specs keeps job versions, so that a claim does not read a definition that
// the worker has run before.
type specs struct {
	load func(ctx context.Context, keys []versionKey) (map[versionKey]definition, error)

	mu    sync.Mutex
	kept  map[versionKey]definition
	bytes int
}

// of answers the definitions of the keys, reading in one statement those that
// are not kept. A version that does not exist is not in the answer.
func (s *specs) of(ctx context.Context, keys []versionKey) (map[versionKey]definition, error) {
	found := make(map[versionKey]definition, len(keys))
	var missing []versionKey
	s.mu.Lock()
	for _, k := range keys {
		if d, ok := s.kept[k]; ok {
			found[k] = d
		} else if _, asked := found[k]; !asked {
			missing = append(missing, k)
		}
	}
	s.mu.Unlock()
	if len(missing) == 0 {
		return found, nil
	}
	loaded, err := s.load(ctx, missing)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, d := range loaded {
		found[k] = d
		s.keep(k, d)
	}
	return found, nil
}

// keep makes room by dropping versions in the map's order, which is random
// enough: what is dropped and needed is read again.
func (s *specs) keep(k versionKey, d definition) {
	if _, ok := s.kept[k]; ok {
		return
	}
	for old, o := range s.kept {
		if s.bytes+d.size <= maxSpecBytes {
			break
		}
		delete(s.kept, old)
		s.bytes -= o.size
	}
	s.kept[k] = d
	s.bytes += d.size
}
