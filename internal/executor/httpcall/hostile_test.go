package httpcall_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/executor"
)

func TestBodies(t *testing.T) {
	t.Parallel()
	const limit = 64 << 10
	b64 := base64.StdEncoding.EncodeToString
	big := bytes.Repeat([]byte("a"), limit)
	control := bytes.Repeat([]byte{1}, limit)
	for _, test := range []struct {
		name      string
		sent      []byte
		want      string
		encoding  string
		truncated bool
	}{
		{"nothing", nil, "", "", false},
		{"text", []byte("héllo\n"), "héllo\n", "", false},
		{"markup", []byte("<a&b>"), "<a&b>", "", false},
		{"terminal colours", []byte("\x1b[31mred"), "\x1b[31mred", "", false},
		{"NUL", []byte("a\x00b"), b64([]byte("a\x00b")), "base64", false},
		{"invalid UTF-8", []byte("a\xffb"), b64([]byte("a\xffb")), "base64", false},
		{"cut character at the end of a whole body", []byte("a\xc3"), b64([]byte("a\xc3")), "base64", false},
		{"exactly the limit", big, string(big), "", false},
		{"one byte more", append(bytes.Clone(big), 'b'), string(big), "", true},
		{"cut through a character", append(bytes.Clone(big[1:]), "é"...), string(big[1:]), "", true},
		{"markup to the limit", bytes.Repeat([]byte("<"), limit), strings.Repeat("<", limit), "", false},
		{"control characters that JSON blows up", control, b64(control), "base64", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(test.sent) })
			out := call(t, t.Context(), run(server, `{"url":"$URL"}`))
			if out.Err != nil {
				t.Fatal(out.Err)
			}
			got := result(t, out)
			if got.Body != test.want || got.BodyEncoding != test.encoding || got.Truncated != test.truncated {
				t.Errorf("body %.40q (%d bytes) %q truncated %v", got.Body, len(got.Body), got.BodyEncoding, got.Truncated)
			}
			if got.BodyBytes != int64(len(test.sent)) {
				t.Errorf("bodyBytes = %d, want %d", got.BodyBytes, len(test.sent))
			}
		})
	}
}

func TestHeadersThatAreKept(t *testing.T) {
	t.Parallel()
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["X-List"] = []string{"a", "b"}
		w.Header().Set("Set-Cookie", "session=secret")
		w.Header().Set("X-Odd", "\xff")
		w.Header().Set("Z-Large", strings.Repeat("z", 20<<10))
	})
	out := call(t, t.Context(), run(server, `{"url":"$URL"}`))
	if bytes.Contains(out.Result, []byte("session=secret")) {
		t.Error("a cookie is in the result")
	}
	got := result(t, out)
	if got.Headers["X-List"] != "a, b" || got.Headers["Set-Cookie"] != "[redacted]" || got.Headers["X-Odd"] != "\uFFFD" {
		t.Errorf("headers = %v", got.Headers)
	}
	if _, ok := got.Headers["Z-Large"]; ok || !got.HeadersTruncated {
		t.Errorf("a header of 20 KiB is kept; headersTruncated = %v", got.HeadersTruncated)
	}
}

// A small body that unfolds to much stays small.
func TestGzipBombStaysFolded(t *testing.T) {
	t.Parallel()
	var bomb bytes.Buffer
	w := gzip.NewWriter(&bomb)
	_, _ = io.Copy(w, io.LimitReader(zeroes{}, 30<<20))
	_ = w.Close()
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(bomb.Bytes())
	})
	got := result(t, call(t, t.Context(), run(server, `{"url":"$URL"}`)))
	if got.BodyEncoding != "base64" || got.BodyBytes != int64(bomb.Len()) {
		t.Errorf("%d bytes of %d, encoding %q", got.BodyBytes, bomb.Len(), got.BodyEncoding)
	}
}

type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// A body without end is read up to 10 MiB, in little memory, and then hung up
// on. It runs alone, because it counts what the program allocates.
func TestEndlessBodyIsCutOff(t *testing.T) {
	var sent atomic.Int64
	ended := make(chan struct{})
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		chunk := bytes.Repeat([]byte("a"), 32<<10)
		for r.Context().Err() == nil {
			n, err := w.Write(chunk)
			if sent.Add(int64(n)); err != nil {
				return
			}
		}
	})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	out := call(t, t.Context(), run(server, `{"url":"$URL"}`))
	runtime.ReadMemStats(&after)
	<-ended // so the connection was closed
	if got := result(t, out); out.Err != nil || !got.Truncated || got.BodyBytes != 10<<20 || len(got.Body) != 64<<10 {
		t.Errorf("error %v, truncated %v, %d bytes received, %d kept", out.Err, got.Truncated, got.BodyBytes, len(got.Body))
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 64<<20 {
		t.Errorf("%d MiB were allocated for it", grown>>20)
	}
}

// A body that drips cannot outlive the attempt.
func TestDripMeetsTheDeadline(t *testing.T) {
	t.Parallel()
	drip := func(w http.ResponseWriter, r *http.Request) {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_, _ = w.Write([]byte("."))
				_ = http.NewResponseController(w).Flush()
			case <-r.Context().Done():
				return
			}
		}
	}
	silent := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	for _, test := range []struct {
		name    string
		handler http.HandlerFunc
		config  string
		limit   time.Duration // of the attempt
		want    string
	}{
		{"the job's own limit, dripping", drip, `{"url":"$URL","timeout":0.2}`, time.Minute, "no complete answer within 200ms"},
		{"the job's own limit, silent", silent, `{"url":"$URL","timeout":0.2}`, time.Minute, "no complete answer within 200ms"},
		{"the attempt's limit", drip, `{"url":"$URL"}`, 200 * time.Millisecond, "no complete answer within 200ms"},
		{"the shorter one", silent, `{"url":"$URL","timeout":60}`, 200 * time.Millisecond, "no complete answer within 200ms"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), test.limit)
			defer cancel()
			r := run(serve(t, test.handler), test.config)
			r.Timeout = test.limit
			out := call(t, ctx, r)
			if out.Err == nil || out.Err.Type != executor.Timeout || out.Err.Message != test.want {
				t.Errorf("error = %v, want a TIMEOUT %q", out.Err, test.want)
			}
		})
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	server := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	out := call(t, ctx, run(server, `{"url":"$URL"}`))
	if out.Err == nil || out.Err.Type != executor.SystemError || out.Err.Message != "the call was cancelled" {
		t.Errorf("error = %v, want the cancellation", out.Err)
	}
}

// Calls without a response, and how they are classed. No message holds the
// URL's query.
func TestFailures(t *testing.T) {
	t.Parallel()
	hijack := func(answer string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			conn, buffer, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			_, _ = buffer.WriteString(answer)
			_ = buffer.Flush()
			_ = conn.(*net.TCPConn).SetLinger(0)
			_ = conn.Close()
		}
	}
	redirect := func(to string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to, http.StatusFound) }
	}
	// On the port of a connection nobody listens, now or later.
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", serve(t, func(http.ResponseWriter, *http.Request) {}).Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	gone := &httptest.Server{URL: "http://" + conn.LocalAddr().String()}
	for _, test := range []struct {
		name    string
		handler http.HandlerFunc // nil is a port that is closed
		kind    executor.ErrorType
		want    string
	}{
		{"closed port", nil, executor.NetworkError, "the target refused the connection"},
		{"reset", hijack(""), executor.NetworkError, "the target "},
		{"body cut off", hijack("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"), executor.NetworkError, "the connection broke before"},
		{"large headers", hijack("HTTP/1.1 200 OK\r\nA: " + strings.Repeat("a", 80<<10) + "\r\n\r\n"), executor.NetworkError, "the target"},
		{"redirected to metadata", redirect("http://169.254.169.254/?token=secret"), executor.ValidationError, "not allowed (link-local)"},
		{"redirected for ever", redirect("?token=secret"), executor.ValidationError, "not allowed (redirect-limit)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := gone
			if test.handler != nil {
				server = serve(t, test.handler)
			}
			out := call(t, t.Context(), run(server, `{"url":"$URL/?token=secret"}`))
			if out.Err == nil || out.Err.Type != test.kind || !strings.HasPrefix(out.Err.Message, test.want) {
				t.Fatalf("error = %v, want %s %q", out.Err, test.kind, test.want)
			}
			if text := fmt.Sprint(out.Err, string(out.Result)); strings.Contains(text, "secret") || strings.Contains(text, "127.0.0.1") {
				t.Errorf("%q holds the URL", text)
			}
		})
	}
}

func TestBrokenBodyKeepsWhatCame(t *testing.T) {
	t.Parallel()
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte("half"))
	})
	out := call(t, t.Context(), run(server, `{"url":"$URL"}`))
	if got := result(t, out); got.Body != "half" || !got.Truncated || got.StatusCode != http.StatusOK {
		t.Errorf("result = %+v", got)
	}
}
