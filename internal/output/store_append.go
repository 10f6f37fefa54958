package output

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/secret"
)

// clean makes lines as they are stored: what is secret is masked, also where it has several
// lines; a line break within a line is a space; of a long line the beginning is kept.
func clean(lines []Line, mask secret.Mask) {
	for i := range lines {
		lines[i].Text = strings.NewReplacer("\r\n", " ", "\n", " ", "\r", " ").Replace(strings.TrimRight(lines[i].Text, "\r\n"))
	}
	streams := map[string][]int{}
	for i, l := range lines {
		streams[string(l.Stream)] = append(streams[string(l.Stream)], i)
	}
	for _, of := range streams {
		texts := make([]string, len(of))
		for n, i := range of {
			texts[n] = lines[i].Text
		}
		for n, text := range mask.Lines(texts) {
			text = storable(text)
			lines[of[n]].Text, lines[of[n]].Continues = cutText(text, lineBytes), len(text) > lineBytes
		}
	}
}

// Append stores lines of an attempt that runs outside our processes, whose lines come piece by
// piece to any process; the first of them has a number. Lines up to the last that is stored are
// not stored again, so a call is repeated after a lost answer. As much of an attempt is kept
// as of one that runs here, by what is stored: the beginning and the end. Alive says that the
// attempt goes on: nothing is stored of another. Run need not run for it.
func (w *Writer) Append(ctx context.Context, tenant uuid.UUID, attempt Attempt, mask secret.Mask, first int, lines []Line) (alive bool, err error) {
	clean(lines, mask)
	dropped := 0
	err = w.store.db.InTx(ctx, func(tx *postgres.Tx) error {
		alive, dropped = false, 0
		locked, err := tx.LockWritingAttempt(ctx, db.LockWritingAttemptParams{TenantID: tenant, ID: attempt.ID, Attempt: int32(attempt.Number), LeaseToken: &attempt.Token})
		if err != nil || len(locked) == 0 {
			return err
		}
		alive = true
		kept, err := tx.ListOutputSizes(ctx, db.ListOutputSizesParams{TenantID: tenant, ExecutionID: attempt.ID, Attempt: int32(attempt.Number)})
		if err != nil {
			return err
		}
		last := 0
		if n := len(kept); n > 0 {
			last = int(kept[n-1].LastLine)
		}
		fresh := number(attempt, first, last, lines)
		if len(fresh) == 0 {
			return nil
		}
		size, err := insertLines(ctx, tx, attempt, fresh)
		if err != nil {
			return err
		}
		dropped, err = trim(ctx, tx, tenant, attempt, kept, size)
		return err
	})
	if err != nil {
		return alive, fmt.Errorf("append output: %w", postgres.Fault(err))
	}
	w.metrics.OutputDropped(dropped)
	return alive, nil
}

// number gives lines their numbers and leaves out those that are stored.
func number(attempt Attempt, first, last int, lines []Line) (fresh []Line) {
	for i, l := range lines {
		if l.Attempt, l.Number = attempt.Number, first+i; l.Number > last {
			fresh = append(fresh, l)
		}
	}
	return fresh
}

// insertLines stores lines in chunks, and returns how large they are.
func insertLines(ctx context.Context, tx *postgres.Tx, attempt Attempt, lines []Line) (size int, err error) {
	var p db.InsertExecutionOutputParams
	begin, bytes := 0, 0
	for i, l := range lines {
		if bytes += len(l.Text) + lineCost; bytes < chunkBytes && i < len(lines)-1 {
			continue
		}
		chunk := encode(lines[begin : i+1])
		begin, bytes, size = i+1, 0, size+len(chunk)
		p.ExecutionIds, p.Attempts, p.LeaseTokens = append(p.ExecutionIds, attempt.ID), append(p.Attempts, int32(attempt.Number)), append(p.LeaseTokens, attempt.Token)
		p.LastLines, p.Lines = append(p.LastLines, int32(l.Number)), append(p.Lines, chunk)
	}
	return size, tx.InsertExecutionOutput(ctx, p)
}

// trim puts one line that says how many were dropped in the place of chunks between the
// beginning and the end that are kept, where there are more than both: kept are those from
// before, oldest first, and added is how large those are that came now.
func trim(ctx context.Context, tx *postgres.Tx, tenant uuid.UUID, attempt Attempt, kept []db.ListOutputSizesRow, added int) (dropped int, err error) {
	total := added
	for _, k := range kept {
		total += int(k.Size)
	}
	if total <= headBytes+tailBytes {
		return 0, nil
	}
	middle := between(kept, added)
	if len(middle) == 0 {
		return 0, nil
	}
	taken, err := tx.TakeOutput(ctx, db.TakeOutputParams{TenantID: tenant, ExecutionID: attempt.ID, Attempt: int32(attempt.Number), LastLines: middle})
	if err != nil {
		return 0, err
	}
	gap, mark := Dropped{}, Line{Attempt: attempt.Number, Number: int(middle[len(middle)-1])}
	for _, chunk := range taken {
		lines, err := decode(attempt.Number, chunk)
		if err != nil {
			return 0, err
		}
		for _, l := range lines {
			if mark.At = l.At; l.Dropped != nil {
				gap.Lines, gap.Bytes = gap.Lines+l.Dropped.Lines, gap.Bytes+l.Dropped.Bytes
				continue
			}
			gap.Lines, gap.Bytes, dropped = gap.Lines+1, gap.Bytes+int64(len(l.Text)), dropped+1
		}
	}
	mark.Dropped = &gap
	_, err = insertLines(ctx, tx, attempt, []Line{mark})
	return dropped, err
}

// between are the last lines of the chunks between the beginning, up to headBytes or the
// line that stands for dropped ones, and the end of tailBytes.
func between(kept []db.ListOutputSizesRow, added int) (middle []int32) {
	begin, end, head, tail := 0, len(kept), 0, added
	for begin < end && !kept[begin].Gap && head+int(kept[begin].Size) <= headBytes {
		head += int(kept[begin].Size)
		begin++
	}
	for end > begin && !kept[end-1].Gap && tail+int(kept[end-1].Size) <= tailBytes {
		tail += int(kept[end-1].Size)
		end--
	}
	if end-begin == 1 && kept[begin].Gap {
		return nil // it is said already
	}
	for _, k := range kept[begin:end] {
		middle = append(middle, k.LastLine)
	}
	return middle
}
