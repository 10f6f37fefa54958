package rollup

import "encoding/binary"

const version = 1

// The words of which a kind's byte is made; 0 stands for a word that is not among these. The
// order is stored: add to the end only, and no more than 3, 7 and 7.
var (
	jobTypes = [...]string{1: "http", "function", "command"}                            // constant
	triggers = [...]string{1: "scheduled", "manual", "retry", "backfill", "dependency"} // constant
	statuses = [...]string{1: "completed", "failed", "cancelled", "skipped", "missed"}  // constant
)

// code is the byte of a kind, or 0 where it has none.
func code(k Kind) byte {
	t, r, s := index(jobTypes[:], k.JobType), index(triggers[:], k.Trigger), index(statuses[:], k.Status)
	if t == 0 || r == 0 || s == 0 {
		return 0
	}
	return byte(t<<6 | r<<3 | s)
}

func index(words []string, word string) int {
	for i, w := range words {
		if i > 0 && w == word {
			return i
		}
	}
	return 0
}

// packer writes cells that come in order.
type packer struct {
	out  []byte
	last Cell // not written yet
	some bool // whether there is a last one

	job  []byte // of the last one: its runs,
	rows uint64 // and how many executions they count

	run    []byte // of the last one's kind and quarter: its cells,
	cells  uint64 // how many they are,
	bucket int    // and the bucket of the one before
}

// add takes the next cell; one that equals the last but for its counts is added to
// it.
func (p *packer) add(c *Cell) {
	if !p.some {
		p.last, p.some, p.bucket = *c, true, None
		return
	}
	if compare(&p.last, c) == 0 {
		p.last.Rows += c.Rows
		p.last.Retried += c.Retried
		p.last.DurationMS += c.DurationMS
		return
	}
	p.write()
	if p.last.Job != c.Job || p.last.Kind != c.Kind || p.last.Quarter != c.Quarter {
		p.endRun()
	}
	if p.last.Job != c.Job {
		p.endJob()
	}
	p.last = *c
}

func (p *packer) write() {
	c := &p.last
	p.run = binary.AppendUvarint(p.run, uint64(c.Bucket-p.bucket))
	if c.Retried == 0 {
		p.run = binary.AppendUvarint(p.run, uint64(c.Rows)<<1)
	} else {
		p.run = binary.AppendUvarint(p.run, uint64(c.Rows)<<1|1)
		p.run = binary.AppendUvarint(p.run, uint64(c.Retried))
	}
	p.run = binary.AppendUvarint(p.run, uint64(c.DurationMS))
	p.cells++
	p.bucket = c.Bucket
	p.rows += uint64(c.Rows)
}

func (p *packer) endRun() {
	kind := code(p.last.Kind)
	p.job = append(p.job, kind)
	if kind == 0 {
		for _, word := range []string{p.last.Kind.JobType, p.last.Kind.Trigger, p.last.Kind.Status} {
			p.job = binary.AppendUvarint(p.job, uint64(len(word)))
			p.job = append(p.job, word...)
		}
	}
	p.job = binary.AppendUvarint(p.job, p.cells<<2|uint64(p.last.Quarter))
	p.job = append(p.job, p.run...)
	p.run, p.cells, p.bucket = p.run[:0], 0, None
}

func (p *packer) endJob() {
	p.out = append(p.out, p.last.Job[:]...)
	p.out = binary.AppendUvarint(p.out, p.rows)
	p.out = binary.AppendUvarint(p.out, uint64(len(p.job)))
	p.out = append(p.out, p.job...)
	p.job, p.rows = p.job[:0], 0
}

func (p *packer) finish() []byte {
	if p.some {
		p.write()
		p.endRun()
		p.endJob()
	}
	return p.out
}
