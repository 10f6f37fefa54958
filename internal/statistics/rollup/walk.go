package rollup

import (
	"encoding/binary"

	"github.com/google/uuid"
)

// Walk shows the counts in their order; the cell is valid until the next, and
// fresh says that it is of another job, kind or quarter than the one before. Jobs
// that wanted refuses are passed over; nil wants them all.
func Walk(packed []byte, wanted func(job uuid.UUID) bool, visit func(c *Cell, fresh bool)) error {
	var c Cell
	return each(packed, func(job []byte, _ int64, runs []byte) bool {
		copy(c.Job[:], job)
		if wanted != nil && !wanted(c.Job) {
			return true
		}
		return c.walk(runs, visit)
	})
}

// Jobs shows how many executions of each job are counted, and reads nothing else.
func Jobs(packed []byte, visit func(job uuid.UUID, rows int64)) error {
	return each(packed, func(job []byte, rows int64, _ []byte) bool {
		visit(uuid.UUID(job), rows)
		return true
	})
}

// Split divides what is packed of many jobs by their parts.
func Split(packed []byte) (map[int16][]byte, error) {
	parts := map[int16][]byte{}
	err := each(packed, func(job []byte, rows int64, runs []byte) bool {
		part := PartOf(uuid.UUID(job))
		out, begun := parts[part]
		if !begun {
			out = append(out, version)
		}
		out = append(out, job...)
		out = binary.AppendUvarint(out, uint64(rows))
		out = binary.AppendUvarint(out, uint64(len(runs)))
		parts[part] = append(out, runs...)
		return true
	})
	return parts, err
}

// each goes from job to job.
func each(packed []byte, visit func(job []byte, rows int64, runs []byte) bool) error {
	if len(packed) == 0 || packed[0] != version {
		return errCorrupt
	}
	const size = len(uuid.UUID{})
	for rest := packed[1:]; len(rest) > 0; {
		if len(rest) < size {
			return errCorrupt
		}
		r := reader{from: rest, at: size}
		rows, length := r.next(), r.next()
		if r.bad || length > uint64(len(rest)-r.at) {
			return errCorrupt
		}
		end := r.at + int(length)
		if !visit(rest[:size], int64(rows), rest[r.at:end]) {
			return errCorrupt
		}
		rest = rest[end:]
	}
	return nil
}

// walk shows the cells of one job, and says whether they were read to their end.
func (c *Cell) walk(runs []byte, visit func(c *Cell, fresh bool)) bool {
	r := reader{from: runs}
	for r.at < len(runs) {
		c.Kind = r.kind()
		head := r.next()
		c.Quarter, c.Bucket = int(head&3), None
		for n := range head >> 2 {
			c.Bucket += int(r.next())
			rows := r.next()
			if c.Retried = 0; rows&1 != 0 {
				c.Retried = int64(r.next())
			}
			c.Rows, c.DurationMS = int64(rows>>1), int64(r.next())
			if r.bad {
				return false
			}
			visit(c, n == 0)
		}
	}
	return !r.bad
}

// reader takes numbers and words off bytes; bad says that there were too few.
type reader struct {
	from []byte
	at   int
	bad  bool
}

// next is a number; most take one byte.
func (r *reader) next() uint64 {
	if r.at < len(r.from) && r.from[r.at] < 0x80 {
		r.at++
		return uint64(r.from[r.at-1])
	}
	return r.long()
}

func (r *reader) long() uint64 {
	v, n := binary.Uvarint(r.from[min(r.at, len(r.from)):])
	if n <= 0 {
		r.bad = true
		return 0
	}
	r.at += n
	return v
}

func (r *reader) kind() (k Kind) {
	packed := r.from[r.at]
	r.at++
	if packed != 0 {
		job, trigger, status := int(packed>>6), int(packed>>3&7), int(packed&7)
		if job == 0 || trigger == 0 || status == 0 || trigger >= len(triggers) || status >= len(statuses) {
			r.bad = true
			return k
		}
		return Kind{jobTypes[job], triggers[trigger], statuses[status]}
	}
	for _, word := range []*string{&k.JobType, &k.Trigger, &k.Status} {
		length := r.next()
		if r.bad || length > uint64(len(r.from)-r.at) {
			r.bad = true
			return k
		}
		*word = string(r.from[r.at : r.at+int(length)])
		r.at += int(length)
	}
	return k
}
