package worker

import (
	"context"
	"sync"

	"github.com/scheduler-service/scheduler/internal/job/definition"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// maxSpecBytes bounds what a worker keeps of job versions: 64 MiB.
const maxSpecBytes = 64 << 20

// specs keeps job versions, so that a claim does not read a definition that
// the worker has run before.
type specs struct {
	load func(ctx context.Context, keys []definition.Key) (map[definition.Key]definition.Definition, error)

	mu    sync.Mutex
	kept  map[definition.Key]definition.Definition
	bytes int
}

func newSpecs(from *postgres.DB) *specs {
	return &specs{kept: map[definition.Key]definition.Definition{}, load: func(ctx context.Context, keys []definition.Key) (map[definition.Key]definition.Definition, error) {
		return definition.Read(ctx, from, keys) //nolint:wrapcheck // it says what it read
	}}
}

// of answers the definitions of the keys, reading in one statement those that
// are not kept. A version that does not exist is not in the answer.
func (s *specs) of(ctx context.Context, keys []definition.Key) (map[definition.Key]definition.Definition, error) {
	found := make(map[definition.Key]definition.Definition, len(keys))
	var missing []definition.Key
	s.mu.Lock()
	for _, k := range keys {
		if d, ok := s.kept[k]; ok {
			found[k] = d
		} else {
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
func (s *specs) keep(k definition.Key, d definition.Definition) {
	if _, ok := s.kept[k]; ok {
		return
	}
	for old, o := range s.kept {
		if s.bytes+sizeOf(d) <= maxSpecBytes {
			break
		}
		delete(s.kept, old)
		s.bytes -= sizeOf(o)
	}
	s.kept[k] = d
	s.bytes += sizeOf(d)
}

// sizeOf is about how many bytes a definition that is kept takes.
func sizeOf(d definition.Definition) int { return len(d.Config) + len(d.Sealed) + 512 }
