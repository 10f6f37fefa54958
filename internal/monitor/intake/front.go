package intake

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/monitor"
)

const (
	// knockEvery is the distance of two pings of our own while a monitor has a deadline, and
	// idleEvery while none has. One process is enough: the others see how old the last one is.
	knockEvery = time.Second
	// knocking is how long one may take.
	knocking = 3 * time.Second
	// tellEvery is the least distance of two lines in the log that say that one did not come in.
	tellEvery = 5 * time.Minute
	// frontSilence is how long none may have come in that is a gap.
	frontSilence = 10 * time.Second
)

// MaxHold is how long alerts are held back at most while no ping of our own comes in by the
// public address. After that it may be our own pings that cannot come, and not those of crons.
const MaxHold = 15 * time.Minute

// FrontSignal is the last part of the address of a ping of our own. An earlier version refuses it
// as no signal, and takes it for nobody's guess at a key.
const FrontSignal = "front"

// Front takes a ping of our own, which came in by the public address. Another key than that of
// our own is NotFound.
func (d *Desk) Front(ctx context.Context, key string) error {
	ours, err := d.store.touchFront(ctx, key)
	switch {
	case err != nil:
		return fault.Wrap(fault.Unavailable, fault.CodeUnavailable, "the ping could not be stored: send it again", err)
	case !ours:
		return monitor.NoSuchKey()
	}
	return nil
}

// Knock sends pings of our own to the public address until ctx ends, as crons do: while none of
// them comes in, pings of crons may not come in either, and watch holds alerts back.
func (d *Desk) Knock(ctx context.Context, public string) error {
	client := &http.Client{Timeout: knocking, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	k := knocker{desk: d, public: strings.TrimSuffix(public, "/"), send: client.Do}
	for {
		clock.Sleep(ctx, d.rest())
		if ctx.Err() != nil {
			return nil
		}
		k.pass(ctx)
	}
}

// rest is how long to wait before the next ping of our own. It varies, so that one process
// goes ahead of the others.
func (d *Desk) rest() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.watched {
		return knockEvery + rand.N(knockEvery/4)
	}
	return idleEvery + rand.N(idleEvery/4)
}

// knocker sends pings of our own. One goroutine uses it.
type knocker struct {
	desk   *Desk
	public string
	send   func(*http.Request) (*http.Response, error)
	came   bool        // one came in, ever
	told   *clock.Mark // when the log was told that one did not; nil: never
}

// pass sends one, unless one has just come in.
func (k *knocker) pass(ctx context.Context) {
	key, silent, err := k.desk.store.front(ctx)
	if err != nil || silent < knockEvery {
		return // without the database watch tells nobody late
	}
	err = k.knock(ctx, key)
	switch {
	case ctx.Err() != nil:
	case err == nil:
		k.came = true
	case k.told != nil && k.told.Elapsed() < tellEvery:
	case k.came:
		k.tell(ctx, "a ping of our own did not come in by PUBLIC_URL; while none does, alerts of monitors are held back, for 15 minutes at most", err)
	default:
		k.tell(ctx, "this process cannot reach the API at PUBLIC_URL; unless another one can, an outage in front of it is not noticed, and makes monitors late", err)
	}
}

// tell tells the log. The next line comes after tellEvery: where a part of the pings is lost, one
// in three say, each of them would write one.
func (k *knocker) tell(ctx context.Context, message string, err error) {
	now := clock.Start()
	k.told = &now
	k.desk.log.WarnContext(ctx, message, "error", err)
}

func (k *knocker) knock(ctx context.Context, key string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, k.public+"/ping/"+key+"/"+FrontSignal, http.NoBody)
	if err != nil {
		return fmt.Errorf("address of a ping of our own: %w", err)
	}
	answer, err := k.send(request)
	if err != nil {
		return fmt.Errorf("send a ping of our own: %w", err)
	}
	_ = answer.Body.Close() // it says nothing more
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("a ping of our own was answered %s", answer.Status)
	}
	return nil
}
