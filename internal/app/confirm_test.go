package app

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestAsk(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]bool{"\n": true, "y\n": true, "Yes\n": true, "": true, "n\n": false, " NO \n": false, "n": false} {
		var out strings.Builder
		if got := newPerson(strings.NewReader(answer), &out).ask(t.Context(), "Redis is not installed; apt-get installs it: x"); got != want {
			t.Errorf("%q: %v, want %v", answer, got, want)
		}
		if got := out.String(); got != "Redis is not installed; apt-get installs it: x. Go on? [Y/n] " {
			t.Errorf("it asks %q", got)
		}
	}
}

func TestNobodyAnswers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		ends func(context.Context) (context.Context, context.CancelFunc)
		want bool
	}{
		{"in time", func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Minute)
		}, true},
		{"and the program is told to stop", func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return ctx, cancel
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				silent, end := io.Pipe()
				defer end.Close()
				ctx, cancel := tc.ends(t.Context())
				defer cancel()
				p := newPerson(silent, io.Discard)
				if got := p.ask(ctx, "x"); got != tc.want {
					t.Errorf("got %v", got)
				}
				// The question after it gets its answer.
				go func() { _, _ = io.WriteString(end, "no\n") }()
				if p.ask(t.Context(), "y") {
					t.Error("a no is taken for a yes")
				}
			})
		})
	}
}

// Only a terminal is read from, and never a device without an end.
func TestOnlyATerminalIsAsked(t *testing.T) {
	t.Parallel()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	zero, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer zero.Close()
	for _, f := range []*os.File{null, zero} {
		if foreground(f) {
			t.Errorf("%s is taken for a terminal", f.Name())
		}
	}
}
