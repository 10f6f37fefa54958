package execution

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

// A timeline has no gaps, and says of each interval what it went to.
func TestTimeline(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(seconds float64) time.Time { return begin.Add(time.Duration(seconds * float64(time.Second))) }
	moment := func(seconds float64) *time.Time { one := at(seconds); return &one }
	job := uuid.New()
	ran := func(of uuid.UUID, made, from, to float64) neighbour {
		return neighbour{id: uuid.New(), job: of, jobType: "http", createdAt: at(made), from: at(from), to: at(to)}
	}
	e := Execution{ID: uuid.New(), JobID: job, JobType: "http", ScheduledAt: at(0), CreatedAt: at(1)}
	ends := func(status Status, started, ended float64, attempts ...Attempt) Execution {
		one := e
		one.Status, one.StartedAt, one.CompletedAt, one.Attempts = status, moment(started), moment(ended), attempts
		return one
	}
	once := func(from, to float64) Execution {
		return ends(Completed, from, to, Attempt{Number: 1, Status: Completed, StartedAt: moment(from), EndedAt: moment(to)})
	}
	waits := e
	waits.Status, waits.AvailableAt = Pending, moment(3)
	retries := e
	retries.Status, retries.StartedAt, retries.Attempt = Retrying, moment(1), 1
	retries.Attempts = []Attempt{{Number: 1, Status: Failed, StartedAt: moment(1), EndedAt: moment(2)}}
	missed := e
	missed.Status = Missed
	early := once(0.5, 2)
	early.CreatedAt = at(0)
	for _, test := range []struct {
		name    string
		of      Execution
		near    []neighbour
		limits  bounds
		want    string
		summary string
	}{
		{"no wait", early, nil, bounds{}, "queue 0-0.5, attempt 1 completed 0.5-2", "It started 500ms after its scheduled time: 500ms for a worker. Attempt 1 completed."},
		{"promotion", once(1, 2), nil, bounds{}, "promotion 0-1, attempt 1 completed 1-2", "It started 1s after its scheduled time: 1s for promotion. Attempt 1 completed."},
		{"a worker", once(3, 4), []neighbour{ran(uuid.New(), 2, 2, 5)}, bounds{}, "promotion 0-1, queue 1-3, attempt 1 completed 3-4", "for a worker"},
		{"the job's limit", once(3, 4), []neighbour{ran(job, 0, 0, 2.9)}, bounds{job: 1}, "promotion 0-1, limit job_limit 1-2.9, queue 2.9-3, attempt 1 completed 3-4", "1.9s for a limit"},
		{"a place of the job is free", once(3, 4), []neighbour{ran(job, 0, 0, 2.9)}, bounds{job: 2}, "promotion 0-1, queue 1-3, attempt 1 completed 3-4", ""},
		{"the tenant's limit, then the type's", once(4, 5), []neighbour{ran(uuid.New(), 0, 0, 3), ran(uuid.New(), 0, 0, 2)}, bounds{tenant: 2, jobType: 1}, "promotion 0-1, limit type_limit 1-3, queue 3-4, attempt 1 completed 4-5", ""},
		{"the tenant's", once(4, 5), []neighbour{ran(uuid.New(), 0, 0, 3), ran(uuid.New(), 0, 0, 2)}, bounds{tenant: 2}, "promotion 0-1, limit tenant_limit 1-2, queue 2-4, attempt 1 completed 4-5", ""},
		{"earlier ones", once(4, 5), []neighbour{ran(uuid.New(), 0, 2.5, 3), ran(uuid.New(), 0.5, 3.5, 9), ran(uuid.New(), 2, 3.8, 9)}, bounds{}, "promotion 0-1, backlog 1-3.5, queue 3.5-4, attempt 1 completed 4-5", "2.5s behind earlier executions of the tenant"},
		{"retries", ends(Failed, 1, 9, Attempt{Number: 1, Status: Failed, StartedAt: moment(1), EndedAt: moment(2)}, Attempt{Number: 2, Status: Failed, StartedAt: moment(8), EndedAt: moment(9)}), nil, bounds{}, "promotion 0-1, attempt 1 failed 1-2, retry 2 2-8, attempt 2 failed 8-9", "It waited 6s between attempts. Attempt 2 failed."},
		{"it waits", waits, nil, bounds{}, "promotion 0-1, delay 1-3, queue 3-", "It has not started 10s after its scheduled time"},
		{"it is to be repeated", retries, nil, bounds{}, "promotion 0-1, attempt 1 failed 1-2, retry 2 2-", "It waited 8s between attempts."},
		{"cancelled while it waited", ends(Cancelled, 0, 5), nil, bounds{}, "promotion 0-1, queue 1-5", "It was cancelled and did not run."},
		{"missed", missed, nil, bounds{}, "", "It was missed and did not run."},
	} {
		if test.name == "cancelled while it waited" {
			test.of.StartedAt = nil
		}
		got := timelineOf(test.of, test.near, test.limits, at(10))
		if diff := cmp.Diff(test.want, spelled(got, begin)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
		if summary := got.Summary(); !strings.Contains(summary, test.summary) {
			t.Errorf("%s: the summary is %q, want %q in it", test.name, summary, test.summary)
		}
	}
}

func spelled(line Timeline, begin time.Time) string {
	var all []string
	for _, p := range line.Phases {
		words := []string{string(p.Kind)}
		if p.Limit != "" {
			words = append(words, string(p.Limit))
		}
		if p.Attempt > 0 {
			words = append(words, string(rune('0'+p.Attempt)))
		}
		if p.Status != "" {
			words = append(words, string(p.Status))
		}
		span := number(p.From.Sub(begin)) + "-"
		if p.To != nil {
			span += number(p.To.Sub(begin))
		}
		all = append(all, strings.Join(append(words, span), " "))
	}
	return strings.Join(all, ", ")
}

func number(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }
