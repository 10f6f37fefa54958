package intake

import (
	"errors"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// A process that hung comes back and says since when what was sent to it is lost.
func TestAHungProcessSaysWhatItLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := New(nil, "a", slog.New(slog.DiscardHandler))
		if quiet, lost := d.takeLost(clock.Start()); quiet != firstSilence || lost.from != nil {
			t.Errorf("at its first sign: %v %v", quiet, lost)
		}
		last := clock.Start()
		d.touched = &last
		clock.Sleep(t.Context(), silence)
		if quiet, lost := d.takeLost(clock.Start()); quiet != silence || lost.from != nil {
			t.Errorf("after a usual rest: %v %v", quiet, lost)
		}
		clock.Sleep(t.Context(), 30*time.Second)
		d.lose()
		if _, lost := d.takeLost(clock.Start()); lost.from == nil || lost.from.Elapsed() != silence+30*time.Second || lost.to.Elapsed() != 0 {
			t.Errorf("after it hung: %v", lost)
		}
	})
}

// Our own pings go out while none has come in lately, and the log tells once that none comes in.
func TestOurOwnPingsComeIn(t *testing.T) {
	t.Parallel()
	db, err := postgres.Open(t.Context(), postgres.Config{URL: pgtest.New(t).URL, Role: postgres.Engine, Name: "test", MaxConns: 2, StatementTimeout: pgtest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	var log strings.Builder
	d := New(db, "a", slog.New(slog.NewTextHandler(&log, nil)))
	sent, status := 0, http.StatusOK
	k := knocker{desk: d, public: "https://scheduler.example.com", send: func(r *http.Request) (*http.Response, error) {
		sent++
		if status == 0 {
			return nil, errors.New("connection refused")
		}
		if status == http.StatusOK {
			parts := strings.Split(r.URL.Path, "/")
			if r.URL.Host != "scheduler.example.com" || len(parts) != 4 || parts[1] != "ping" || parts[3] != FrontSignal {
				t.Errorf("sent to %s", r.URL)
			}
			if err := d.Front(t.Context(), parts[2]); err != nil {
				t.Error(err)
			}
		}
		return &http.Response{StatusCode: status, Status: http.StatusText(status), Body: http.NoBody}, nil
	}}
	age := func(by string) {
		if _, err := db.Pool().Exec(t.Context(), "UPDATE monitor_front SET touched_at = now() - $1::interval", by); err != nil {
			t.Fatal(err)
		}
	}
	gaps := func() (n int) {
		if err := db.Pool().QueryRow(t.Context(), "SELECT count(*) FROM monitor_gaps").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	status = 0
	if k.pass(t.Context()); sent != 1 || strings.Count(log.String(), "cannot reach the API at PUBLIC_URL") != 1 {
		t.Errorf("unreachable from the start: %d sent, %s", sent, log.String())
	}
	status = http.StatusOK
	if k.pass(t.Context()); sent != 2 || gaps() != 0 {
		t.Errorf("the first one that came in: %d sent, %d gaps", sent, gaps())
	}
	age("-30 seconds") // so that it is new however long the pass takes
	if k.pass(t.Context()); sent != 2 {
		t.Error("one was sent though another has just come in")
	}
	age("5 seconds")
	status = http.StatusBadGateway
	k.told = nil // five minutes ago
	k.pass(t.Context())
	k.pass(t.Context())
	if strings.Count(log.String(), "did not come in by PUBLIC_URL") != 1 {
		t.Errorf("the log is %s", log.String())
	}
	status = http.StatusOK
	for _, test := range []struct {
		silent string
		gaps   int
	}{{"9 seconds", 0}, {"5 minutes", 1}, {"16 minutes", 1}} {
		n := -1
		for try := 0; try < 10 && n != test.gaps; try++ { // ten seconds are a gap, which a busy machine may make of nine
			if _, err := db.Pool().Exec(t.Context(), "DELETE FROM monitor_gaps WHERE $1 = 0", test.gaps); err != nil {
				t.Fatal(err)
			}
			age(test.silent)
			k.pass(t.Context())
			n = gaps()
		}
		if n != test.gaps {
			t.Errorf("after %s: %d gaps, want %d", test.silent, n, test.gaps)
		}
	}
	if err := d.Front(t.Context(), "front-guessed"); fault.KindOf(err) != fault.NotFound {
		t.Errorf("a guessed key: %v", err)
	}
}

// A ping is answered once, also where its caller has read the answer already: what is answered
// again counts as lost, and makes a gap that excuses everybody.
func TestAPingIsAnsweredOnce(t *testing.T) {
	t.Parallel()
	w := &waiter{answer: make(chan Answer, 1)}
	if !w.reply(Answer{Status: "ok"}) {
		t.Error("the first answer is refused")
	}
	if got := <-w.answer; got.Status != "ok" {
		t.Errorf("answered %+v", got)
	}
	if w.reply(Answer{err: errors.New("not stored")}) {
		t.Error("it is answered a second time")
	}
}
