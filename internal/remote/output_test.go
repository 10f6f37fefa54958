package remote_test

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/callback"
	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/output"
	"github.com/scheduler-service/scheduler/internal/remote"
	"github.com/scheduler-service/scheduler/internal/secret"
	"github.com/scheduler-service/scheduler/internal/secret/keyring"
	"github.com/scheduler-service/scheduler/internal/telemetry"
)

// writes has a desk that takes output.
func (b *bundle) writes() {
	b.desk = remote.NewDesk(remote.Config{DB: b.engine, Keys: b.keys, Callbacks: b.callbacks, Log: slog.New(slog.DiscardHandler), Metrics: telemetry.NewMetrics(telemetry.NewRegistry())})
}

// say reports lines of an attempt.
func (b *bundle) say(a remote.Assignment, first int, texts ...string) error {
	b.t.Helper()
	at, err := b.callbacks.Open(a.CallToken)
	if err != nil {
		b.t.Fatal(err)
	}
	lines := make([]output.Line, len(texts))
	for i, text := range texts {
		lines[i] = output.Line{At: clock.Now(), Stream: executor.Stdout, Text: text}
	}
	return b.desk.Output(b.t.Context(), at, first, lines)
}

func (b *bundle) lines(id uuid.UUID) (all []output.Line) {
	b.t.Helper()
	var after output.Position
	for more := true; more; {
		lines, to, further, err := output.NewStore(b.api).List(b.t.Context(), b.ours, id, output.Filter{After: after, Limit: 500})
		if err != nil {
			b.t.Fatal(err)
		}
		all, after, more = append(all, lines...), to, further
	}
	return all
}

// Output of a worker is kept with its numbers, a repeated report adds nothing, what is secret is
// masked, and an attempt that has ended writes no more.
func TestAWorkerWritesOutput(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.writes()
	key := "-----BEGIN KEY-----\nabcdefgh\nijklmnop\n-----END KEY-----"
	for name, value := range map[string]string{"password": "correct horse", "key": key} {
		if _, _, err := secret.NewStore(b.api, b.keys).Put(t.Context(), b.ours, secret.Draft{Name: name, Value: keyring.NewText(value)}); err != nil {
			t.Fatal(err)
		}
	}
	w := b.register(b.ours, "invoice")
	e := b.trigger(b.ours, b.job(b.ours, "invoice", func(s *job.Spec) {
		s.Config = json.RawMessage(`{"functionName":"invoice","parameters":{"password":"{{secret:password}}","key":"{{secret:key}}"}}`)
	}), "")
	a := b.claimOne(b.ours, w)
	for range 2 {
		if err := b.say(a, 1, "begins", "logs in with correct horse", "a\nb\r\n"); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.say(a, 3, append([]string{"again"}, strings.Split(key, "\n")...)...); err != nil {
		t.Fatal(err)
	}
	var got []string
	for i, l := range b.lines(e.ID) {
		if got = append(got, l.Text); l.Number != i+1 || l.Attempt != 1 || l.Stream != executor.Stdout {
			t.Errorf("line %d is %+v", i+1, l)
		}
	}
	if diff := cmp.Diff([]string{"begins", "logs in with ***", "a b", "***", "***", "***", "***"}, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if _, err := b.complete(a, callback.Report{}); err != nil {
		t.Fatal(err)
	}
	kind(t, "output after the end", b.say(a, 8, "late"), fault.Conflict, fault.CodeAttemptEnded)
	if n := len(b.lines(e.ID)); n != 7 {
		t.Errorf("%d lines", n)
	}
}

// Of much output the beginning and the end are kept, and one line says how much was dropped
// between them.
func TestOutputOfAWorkerIsBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.writes()
	w := b.register(b.ours, "invoice")
	e := b.trigger(b.ours, b.job(b.ours, "invoice"), "")
	a := b.claimOne(b.ours, w)
	const reports, each = 60, 10
	text := strings.Repeat("x", 1000)
	for i := range reports {
		texts := make([]string, each)
		for n := range texts {
			texts[n] = text
		}
		if err := b.say(a, 1+i*each, texts...); err != nil {
			t.Fatal(err)
		}
	}
	gaps, bytes, at := 0, 0, 0
	for _, l := range b.lines(e.ID) {
		bytes += len(l.Text)
		if l.Dropped == nil {
			if l.Number != at+1 {
				t.Errorf("line %d follows %d", l.Number, at)
			}
		} else if gaps++; l.Dropped.Lines != l.Number-at || l.Dropped.Bytes != int64(len(text)*(l.Number-at)) {
			t.Errorf("after %d stands %+v of %+v", at, l, l.Dropped)
		}
		at = l.Number
	}
	if gaps != 1 || at != reports*each || bytes < 200<<10 || bytes > 270<<10 {
		t.Errorf("%d bytes up to line %d, with %d gaps", bytes, at, gaps)
	}
}
