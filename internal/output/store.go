package output

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// store is the writer's door to the database.
type store struct{ db *postgres.DB }

func (s store) insert(ctx context.Context, chunks []chunk) error {
	n := len(chunks)
	p := db.InsertExecutionOutputParams{
		ExecutionIds: make([]uuid.UUID, n), Attempts: make([]int32, n), LeaseTokens: make([]uuid.UUID, n), LastLines: make([]int32, n), Lines: make([]string, n),
	}
	for i, c := range chunks {
		p.ExecutionIds[i], p.Attempts[i], p.LeaseTokens[i] = c.attempt.ID, int32(c.attempt.Number), c.attempt.Token
		p.LastLines[i], p.Lines[i] = int32(c.last), c.lines
	}
	return postgres.Fault(db.New(s.db.Pool()).InsertExecutionOutput(ctx, p))
}

func (s store) progress(ctx context.Context, reports []report) error {
	n := len(reports)
	p := db.StoreProgressParams{
		ExecutionIds: make([]uuid.UUID, n), Attempts: make([]int32, n), LeaseTokens: make([]uuid.UUID, n), Percents: make([]int32, n), Messages: make([]string, n),
	}
	for i, r := range reports {
		p.ExecutionIds[i], p.Attempts[i], p.LeaseTokens[i] = r.attempt.ID, int32(r.attempt.Number), r.attempt.Token
		p.Percents[i], p.Messages[i] = int32(r.percent), r.message
	}
	return postgres.Fault(db.New(s.db.Pool()).StoreProgress(ctx, p))
}

// Store reads the output of a tenant's executions. It does not know which executions there
// are: of one that does not exist there is no output.
type Store struct{ db *postgres.DB }

// NewStore makes a store.
func NewStore(db *postgres.DB) *Store { return &Store{db: db} }

// Filter says which lines of an execution to read.
type Filter struct {
	After   Position
	Attempt int               // only of this one; 0: of all
	Streams []executor.Stream // only of these; none: of all. Lines that stand for dropped ones are of every stream
	Limit   int               // lines
}

const (
	// pageChunks is how many chunks one statement reads.
	pageChunks = 32
	// pageBytes is how much text a page has before it ends, whatever its limit.
	pageBytes = 1 << 20
)

// List reads a page of lines in order, and the position that it came to. More says that there
// are further ones by now.
func (s *Store) List(ctx context.Context, who tenant.Actor, id uuid.UUID, f Filter) (lines []Line, to Position, more bool, err error) {
	err = s.db.InTenantEach(ctx, who.TenantID, func(tx *postgres.Tx) error {
		lines, to, more, err = list(ctx, tx, who, id, f)
		return err
	})
	return lines, to, more, err
}

func list(ctx context.Context, tx *postgres.Tx, who tenant.Actor, id uuid.UUID, f Filter) (lines []Line, to Position, more bool, err error) {
	to = f.After
	p := db.ListExecutionOutputParams{TenantID: who.TenantID, ExecutionID: id, Chunks: pageChunks}
	if f.Attempt > 0 {
		attempt := int32(f.Attempt)
		p.Attempt = &attempt
	}
	for size := 0; ; {
		p.AfterAttempt, p.AfterLine = int32(to.Attempt), int32(to.Line)
		rows, err := tx.ListExecutionOutput(ctx, p)
		if err != nil {
			return nil, to, false, fmt.Errorf("read output: %w", postgres.Fault(err))
		}
		for _, row := range rows {
			chunk, err := decode(int(row.Attempt), row.Lines)
			if err != nil {
				return nil, to, false, err
			}
			for _, l := range chunk {
				if !to.Before(l.Position()) {
					continue
				}
				if len(lines) == f.Limit || size > pageBytes {
					return lines, to, true, nil
				}
				if to = l.Position(); f.fits(l) {
					lines, size = append(lines, l), size+len(l.Text)
				}
			}
		}
		if len(rows) < pageChunks {
			return lines, to, false, nil
		}
	}
}

func (f Filter) fits(l Line) bool {
	if len(f.Streams) == 0 || l.Dropped != nil {
		return true
	}
	for _, s := range f.Streams {
		if s == l.Stream {
			return true
		}
	}
	return false
}

// found is what a poll found of a followed execution.
type found struct {
	active bool
	lines  []Line
	chunks int
}

// poll reads what followed executions of a tenant wrote after their positions.
func poll(ctx context.Context, on *postgres.DB, who uuid.UUID, from map[uuid.UUID]Position) (map[uuid.UUID]found, error) {
	p := db.ListFollowedOutputParams{TenantID: who, Chunks: pollChunks}
	for id, at := range from {
		p.ExecutionIds, p.Attempts, p.LastLines = append(p.ExecutionIds, id), append(p.Attempts, int32(at.Attempt)), append(p.LastLines, int32(at.Line))
	}
	all := make(map[uuid.UUID]found, len(from))
	err := on.InTenantEach(ctx, who, func(tx *postgres.Tx) error {
		rows, err := tx.ListFollowedOutput(ctx, p)
		if err != nil {
			return err
		}
		for _, row := range rows {
			f := all[row.ExecutionID]
			f.active = row.Active
			if row.Lines != "" {
				lines, err := decode(int(row.Attempt), row.Lines)
				if err != nil {
					return err
				}
				f.lines, f.chunks = append(f.lines, lines...), f.chunks+1
			}
			all[row.ExecutionID] = f
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read output that is followed: %w", err)
	}
	return all, nil
}
