package promoter_test

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// death is the end of a promoter inside a pass.
type death struct {
	promoter int
	steps    int32         // after so many steps of its conversation with the database, or
	after    time.Duration // after so long
	left     atomic.Int32
	kill     context.CancelFunc
}

func (d *death) doom(ctx context.Context) context.Context {
	ctx, d.kill = context.WithCancel(ctx)
	if d.steps == 0 {
		time.AfterFunc(d.after, d.kill)
		return ctx
	}
	d.left.Store(d.steps)
	return context.WithValue(ctx, doomed{}, d)
}

// doomed is the key under which a pass carries its death.
type doomed struct{}

// reaper counts the steps of a doomed promoter's conversation with the
// database, and ends it at the chosen one.
type reaper struct{}

func (reaper) step(ctx context.Context) {
	if d, ok := ctx.Value(doomed{}).(*death); ok && d.left.Add(-1) == 0 {
		d.kill()
	}
}

func (r reaper) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	r.step(ctx)
	return ctx
}

func (r reaper) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	r.step(ctx)
	return ctx
}

func (r reaper) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) { r.step(ctx) }

func (r reaper) TraceBatchQuery(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchQueryData) {
	r.step(ctx)
}

func (r reaper) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchEndData) { r.step(ctx) }
