package promoter

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/job/schedules"
	"github.com/scheduler-service/scheduler/internal/schedule"
)

// planStart is an hour before the clocks of New York go back.
var planStart = time.Date(2026, 11, 1, 5, 0, 0, 0, time.UTC)

// drawDue draws a job that is due after planStart, of any schedule and policy.
func drawDue(t *rapid.T) (dueJob, *schedule.Schedule) {
	pick := func(label string, from ...int) int { return rapid.SampledFrom(from).Draw(t, label) }
	policies := []job.MisfirePolicy{job.MisfireSkip, job.FireOnce, job.FireAll}
	j := dueJob{
		id: uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id")), version: 1, anchor: planStart.Add(-time.Duration(pick("anchor", 0, 1, 1_000_003)) * time.Microsecond),
		policy: job.Policy{
			Timezone: "America/New_York", JitterSeconds: pick("jitter", 0, 0, 3, 600), DSTOverlap: rapid.SampledFrom([]string{"first", "last", "both"}).Draw(t, "dst"),
			Overlap:       rapid.SampledFrom([]job.Overlap{job.OverlapSkip, job.OverlapQueue1, job.OverlapQueue, job.OverlapCancel, job.OverlapAllow}).Draw(t, "overlap"),
			MaxConcurrent: pick("max", 1, 2, 5), OverlapQueueLimit: pick("queue", 1, 3, 100), MaxExecutions: int64(pick("executions", 0, 0, 1, 4, 50)),
			Misfire: job.Misfire{Policy: rapid.SampledFrom(policies).Draw(t, "misfire"), Limit: pick("limit", 1, 2, 10, 1000), GraceSeconds: pick("grace", 1, 60, 86400)},
		},
		resume: rapid.SampledFrom(append(policies, "", "", "")).Draw(t, "resume"),
		places: job.Places{Taken: pick("taken", 0, 0, 1, 3), Waiting: pick("waiting", 0, 0, 1)},
	}
	if n := rapid.IntRange(0, 3).Draw(t, "rule"); n == 0 {
		j.policy.Interval = job.Duration(time.Duration(rapid.IntRange(10_000, 200_000).Draw(t, "interval")) * time.Millisecond)
	} else {
		j.policy.CronExpression = []string{"", "*/10 * * * * *", "0 */5 * * * *", "0 */10 1-3 * * *"}[n]
	}
	s, err := schedules.NewCache().Of(j.compiled(), nil)
	if err != nil {
		t.Fatal(err)
	}
	j.due, _ = s.Next(planStart.Add(time.Duration(rapid.IntRange(0, 2*3600).Draw(t, "due")) * time.Second))
	return j, s
}

// dueAt lists what the job catches up at a time, one by one.
func dueAt(j dueJob, s *schedule.Schedule, now time.Time) (due []time.Time) {
	for at, ok := j.due, true; ok && !at.After(now); at, ok = s.Next(at) {
		due = append(due, at)
	}
	return due
}

func newPlan(now time.Time) *plan {
	late := lateStarts{rate: func() int { return 100 }}
	return &plan{at: now, places: late.begin()}
}

// addWhole plans what a job catches up without a bound on rows.
func (p *plan) addWhole(j dueJob, s *schedule.Schedule) { p.add(dueTimesOf(&j, s, p.at), 1<<20) }

// TestEachScheduledTimeHasOneOutcome plans any job at any lateness: what is
// missed comes first and is what the rule says, every other time runs or
// says why not, and only a job that is finished leaves times out.
func TestEachScheduledTimeHasOneOutcome(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		j, s := drawDue(t)
		now := j.due.Add(time.Duration(rapid.SampledFrom([]int{0, 1, 59, 61, 600, 7200}).Draw(t, "late")) * time.Second)
		due := dueAt(j, s, now)
		p := newPlan(now)
		p.addWhole(j, s)
		a := p.advances[0]

		var got []time.Time
		missed := 0
		for _, u := range p.skips {
			if u.status == execution.Missed {
				missed += u.count
				if want := due[:missed]; !u.first.Equal(want[0]) || !u.last.Equal(want[missed-1]) {
					t.Fatalf("missed from %v to %v, want the first %d of %v", u.first, u.last, missed, due)
				}
				got = append(got, due[:missed]...)
				continue
			}
			if u.count != 1 || u.first != u.last || u.reason == "" {
				t.Fatalf("skipped: %+v", u)
			}
			got = append(got, u.first)
		}
		for _, r := range p.runs {
			got = append(got, r.at)
		}
		slices.SortFunc(got, time.Time.Compare)
		over := a.reason == "maxExecutions is reached"
		if over != (j.policy.MaxExecutions > 0 && a.runs >= int(j.policy.MaxExecutions)) {
			t.Fatalf("%d runs of at most %d, and the job becomes %+v", a.runs, j.policy.MaxExecutions, a)
		}
		want := due
		if over && len(got) < len(due) {
			want = due[:len(got)]
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%+v at %v: outcomes (-want +got):\n%s", j.policy, now, diff)
		}
		if want := j.misfire().Decide(due, now); missed != want {
			t.Fatalf("%d missed of %d, want %d", missed, len(due), want)
		}
		checkAdvance(t, p, s, over)
	})
}

// checkAdvance holds what the job becomes against the runs that are planned.
func checkAdvance(t *rapid.T, p *plan, s *schedule.Schedule, over bool) {
	a := p.advances[0]
	next, ok := s.Next(p.at)
	if over || !ok {
		next = time.Time{}
	}
	var last time.Time
	if n := len(p.runs); n > 0 {
		last = p.runs[n-1].at
	}
	if !a.next.Equal(next) || a.runs != len(p.runs) || !a.last.Equal(last) {
		t.Fatalf("the job becomes %+v; want next %v, last %v, %d runs", a, next, last, len(p.runs))
	}
}

// TestSplitsMakeTheWhole lets two promoters, each with schedules that it
// compiled itself, share jobs in any way over any times: within the grace
// time, what they make together is what one pass at the end makes.
func TestSplitsMakeTheWhole(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var jobs []dueJob
		for range rapid.IntRange(1, 4).Draw(t, "jobs") {
			j, _ := drawDue(t)
			j.policy.Overlap, j.policy.MaxExecutions, j.resume = job.OverlapAllow, 0, ""
			j.policy.Misfire.GraceSeconds, j.policy.Misfire.Limit = 86400, 1000 // more than are due
			jobs = append(jobs, j)
		}
		end := planStart.Add(time.Duration(rapid.IntRange(3600, 9000).Draw(t, "end")) * time.Second)
		var moments []time.Time
		for range rapid.IntRange(0, 12).Draw(t, "moments") {
			moments = append(moments, planStart.Add(time.Duration(rapid.Int64Range(0, int64(end.Sub(planStart))).Draw(t, "moment"))))
		}
		slices.SortFunc(moments, time.Time.Compare)
		whole := promoteAll(t, slices.Clone(jobs), []time.Time{end})
		split := promoteAll(t, slices.Clone(jobs), append(moments, end))
		if diff := cmp.Diff(whole, split, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("passes at %v (-whole +split):\n%s", moments, diff)
		}
	})
}

// promoted is what became of a job.
type promoted struct {
	Runs, Skips map[uuid.UUID]time.Time
	Next        time.Time
	Count       int
}

// promoteAll plans what is due at each of the times, each job by one of two
// promoters.
func promoteAll(t *rapid.T, jobs []dueJob, at []time.Time) []promoted {
	caches := [2]*schedules.Cache{schedules.NewCache(), schedules.NewCache()}
	made := make([]promoted, len(jobs))
	for i, j := range jobs {
		made[i] = promoted{Runs: map[uuid.UUID]time.Time{}, Skips: map[uuid.UUID]time.Time{}, Next: j.due}
	}
	for _, now := range at {
		for i := range jobs {
			if jobs[i].due = made[i].Next; jobs[i].due.IsZero() || jobs[i].due.After(now) {
				continue
			}
			s, err := caches[rapid.IntRange(0, 1).Draw(t, "promoter")].Of(jobs[i].compiled(), nil)
			if err != nil {
				t.Fatal(err)
			}
			p := newPlan(now)
			p.addWhole(jobs[i], s)
			for _, r := range p.runs {
				if _, twice := made[i].Runs[r.id]; twice {
					t.Fatalf("%v is made twice", r.at)
				}
				made[i].Runs[r.id] = r.at
			}
			for _, u := range p.skips {
				made[i].Skips[execution.ScheduledID(u.job.id, u.first)] = u.first
			}
			made[i].Next, made[i].Count = p.advances[0].next, made[i].Count+p.advances[0].runs
		}
	}
	return made
}
