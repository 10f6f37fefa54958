package statistics

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/statistics/rollup"
)

// ranked is a job and how often it ran.
type ranked struct {
	job  uuid.UUID
	runs int64
}

// rank finds the jobs that ran most and counts what they came to: only of those
// are all cells read. Both the roll-ups and the single cells are of all jobs; the
// roll-ups are ordered by their parts here, so that few jobs are looked up in at a
// time.
func (t *tally) rank(r reading, rollups []packed, single []rollup.Cell) error {
	slices.SortStableFunc(rollups, func(a, b packed) int { return cmp.Compare(a.part, b.part) })
	cells := map[int16][]*rollup.Cell{}
	for i := range single {
		part := rollup.PartOf(single[i].Job)
		cells[part] = append(cells[part], &single[i])
	}
	var all []ranked
	for part := int16(1); part <= rollup.Parts; part++ {
		var err error
		if all, err = t.runs(r, ofPart(rollups, part), cells[part], all); err != nil {
			return err
		}
	}
	slices.SortFunc(all, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(b.runs, a.runs), bytes.Compare(a.job[:], b.job[:]))
	})
	t.more = len(all) > MaxGroups
	few := map[int16]map[uuid.UUID]*group{}
	for _, one := range all[:min(len(all), MaxGroups)] {
		part := rollup.PartOf(one.job)
		if few[part] == nil {
			few[part] = map[uuid.UUID]*group{}
		}
		t.byJob[one.job] = &group{job: one.job}
		few[part][one.job] = t.byJob[one.job]
	}
	for part, jobs := range few {
		if err := t.detail(r, ofPart(rollups, part), cells[part], jobs); err != nil {
			return err
		}
	}
	return nil
}

func ofPart(rollups []packed, part int16) []packed {
	first, _ := slices.BinarySearchFunc(rollups, part, func(p packed, part int16) int { return cmp.Compare(p.part, part) })
	end, _ := slices.BinarySearchFunc(rollups, part+1, func(p packed, part int16) int { return cmp.Compare(p.part, part) })
	return rollups[first:end]
}

// runs appends how often each job of a part ran.
func (t *tally) runs(r reading, rollups []packed, single []*rollup.Cell, all []ranked) ([]ranked, error) {
	places := make(map[uuid.UUID]int32, 512)
	count := func(job uuid.UUID, runs int64) {
		i, known := places[job]
		if !known {
			i = int32(len(all))
			places[job] = i
			all = append(all, ranked{job: job})
		}
		all[i].runs += runs
	}
	for i := range rollups {
		p := &rollups[i]
		within, whole := p.within(r)
		var err error
		if whole && t.JobID == nil && t.JobType == "" && t.Trigger == "" {
			err = rollup.Jobs(p.cells, count)
		} else {
			err = rollup.Walk(p.cells, t.wanted(), func(c *rollup.Cell, _ bool) {
				if within[c.Quarter] && t.asks(c.Kind) {
					count(c.Job, c.Rows)
				}
			})
		}
		if err != nil {
			return nil, err
		}
	}
	for _, c := range single {
		count(c.Job, c.Rows)
	}
	return all, nil
}

// detail counts what a few jobs of a part came to.
func (t *tally) detail(r reading, rollups []packed, single []*rollup.Cell, few map[uuid.UUID]*group) error {
	for i := range rollups {
		p := &rollups[i]
		within, _ := p.within(r)
		var g *group
		var of *int64
		err := rollup.Walk(p.cells, func(job uuid.UUID) bool { return few[job] != nil }, func(c *rollup.Cell, fresh bool) {
			if fresh {
				if g = nil; within[c.Quarter] && t.asks(c.Kind) {
					g = few[c.Job]
					of = g.of(c.Kind.Status)
				}
			}
			if g != nil {
				g.add(c, of)
			}
		})
		if err != nil {
			return err
		}
	}
	for _, c := range single {
		if g := few[c.Job]; g != nil {
			g.add(c, g.of(c.Kind.Status))
		}
	}
	return nil
}
