package rest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/monitor"
	"github.com/scheduler-service/scheduler/internal/monitor/intake"
	"github.com/scheduler-service/scheduler/internal/ratelimit"
)

const (
	// pingsPerMinute is how often a monitor may be pinged: a run each half minute with two pings
	// and twenty-eight logs.
	pingsPerMinute = 120
	// goodKeysKept bounds the ping keys that a process remembers.
	goodKeysKept = 200_000
)

// goodKeys are ping keys that a process has seen to be good: from an address with too many bad
// ones, pings with these are still taken, since one that is refused may make a false alert.
type goodKeys struct {
	mu   sync.Mutex
	keys map[[32]byte]struct{}
}

func (g *goodKeys) has(key string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, ok := g.keys[sha256.Sum256([]byte(key))]
	return ok
}

func (g *goodKeys) add(key string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.keys == nil || len(g.keys) >= goodKeysKept {
		g.keys = map[[32]byte]struct{}{}
	}
	g.keys[sha256.Sum256([]byte(key))] = struct{}{}
}

// badKeys is how many bad ping keys an address may send, and the bucket that counts them.
func (s *server) badKeys(c *call) (bucket string, rate ratelimit.Rate) {
	return "auth:" + guesser(c.from), ratelimit.Rate{Requests: max(1, s.FailuresPerMinute()), Window: time.Minute}
}

// admitPing counts a ping for its key. Whether the key is good only storing the ping shows.
func (s *server) admitPing(r *http.Request, c *call) error {
	key := chi.URLParam(r, "key")
	bucket, failures := s.badKeys(c)
	if wait := s.Buckets.Refused(bucket); wait > 0 && !s.pinged.has(key) {
		return s.tooMany(failures, "authenticationFailures", wait, "too many requests from this address had no good key")
	}
	rate := ratelimit.Rate{Requests: pingsPerMinute, Window: time.Minute}
	digest := sha256.Sum256([]byte(key)) // buckets are named where others may read them
	if v := s.Buckets.Take(r.Context(), "pings:"+hex.EncodeToString(digest[:16]), rate); !v.OK {
		return s.tooMany(rate, "pingsPerMinute", v.Retry, "a monitor may be pinged 120 times a minute, which is fixed")
	}
	return nil
}

// countBadKey counts an unknown key against the address that sent it. It answers the error
// that the caller gets.
func (s *server) countBadKey(ctx context.Context, err error) error {
	if fault.KindOf(err) != fault.NotFound {
		return err
	}
	bucket, failures := s.badKeys(callOf(ctx))
	if v := s.Buckets.Take(ctx, bucket, failures); !v.OK {
		return s.tooMany(failures, "authenticationFailures", v.Retry, "too many requests from this address had no good key")
	}
	return err
}

// ping stores a ping.
func (s *server) ping(ctx context.Context, key, signal string, rid *string, body io.Reader) (status api.MonitorStatus, err error) {
	if signal == intake.FrontSignal {
		return api.MonitorStatusOk, s.countBadKey(ctx, s.Pings.Front(ctx, key))
	}
	p := monitor.Ping{RunID: orZero(rid)}
	var ok bool
	if p.Signal, p.Exit, ok = monitor.ReadSignal(signal); !ok {
		return "", wrong(fault.Field{Path: "signal", Rule: "pattern", Message: "must be start, fail, log or an exit code from 0 to 255"})
	}
	if body != nil {
		text, err := io.ReadAll(body)
		if err != nil {
			return "", fault.Wrap(fault.Invalid, fault.CodeValidationFailed, "the body did not arrive whole", err)
		}
		p.Log = monitor.Log(text)
	}
	found, err := s.Pings.Ping(ctx, key, p)
	if err = s.countBadKey(ctx, err); err != nil {
		return "", err
	}
	s.pinged.add(key)
	s.Metrics.Ping(string(p.Signal))
	return api.MonitorStatus(found), nil
}

// PingMonitor is POST /ping/{key}.
func (s *server) PingMonitor(ctx context.Context, request api.PingMonitorRequestObject) (api.PingMonitorResponseObject, error) {
	status, err := s.ping(ctx, request.Key, "", request.Params.Rid, request.Body)
	return api.PingMonitor200JSONResponse{Status: status}, err
}

// PingMonitorByGet is GET /ping/{key}.
func (s *server) PingMonitorByGet(ctx context.Context, request api.PingMonitorByGetRequestObject) (api.PingMonitorByGetResponseObject, error) {
	status, err := s.ping(ctx, request.Key, "", request.Params.Rid, nil)
	return api.PingMonitorByGet200JSONResponse{Status: status}, err
}

// SignalMonitor is POST /ping/{key}/{signal}.
func (s *server) SignalMonitor(ctx context.Context, request api.SignalMonitorRequestObject) (api.SignalMonitorResponseObject, error) {
	status, err := s.ping(ctx, request.Key, request.Signal, request.Params.Rid, request.Body)
	return api.SignalMonitor200JSONResponse{Status: status}, err
}

// SignalMonitorByGet is GET /ping/{key}/{signal}.
func (s *server) SignalMonitorByGet(ctx context.Context, request api.SignalMonitorByGetRequestObject) (api.SignalMonitorByGetResponseObject, error) {
	status, err := s.ping(ctx, request.Key, request.Signal, request.Params.Rid, nil)
	return api.SignalMonitorByGet200JSONResponse{Status: status}, err
}
