package javascript_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/devstack/leaktest"
	"github.com/scheduler-service/scheduler/internal/egress"
	"github.com/scheduler-service/scheduler/internal/egress/egresstest"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/executor/javascript"
	"github.com/scheduler-service/scheduler/internal/executor/runner"
	"github.com/scheduler-service/scheduler/internal/executor/sandbox"
)

func TestMain(m *testing.M) {
	if code, done := sandbox.Main(os.Args, runner.Entries()); done {
		os.Exit(code)
	}
	os.Exit(leaktest.Main(m))
}

// ample is how long a run, a start or a dial may take on a busy machine.
const ample = 4 * time.Minute

// cacheDir is shared by the tests of this package. The engine is compiled in it, which no
// run of a test waits for: it takes as long as a busy machine makes it.
var cacheDir = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "javascript-test-")
	leaktest.AtEnd(func() error { return os.RemoveAll(dir) })
	if err != nil {
		return "", err
	}
	log := slog.New(slog.DiscardHandler)
	pool := runner.New(runner.Config{Memory: 512 << 20, CacheDir: dir, StartTime: ample, Log: log})
	defer func() { _ = pool.Close() }()
	out := javascript.New(pool, nil, log).Execute(context.Background(), executor.Run{Config: json.RawMessage(`{"source":"export default () => 1"}`)})
	if out.Err != nil {
		return "", out.Err
	}
	return dir, nil
})

// registry is a worker's registry whose scripts may reach the endpoints.
func registry(t *testing.T, endpoints ...netip.AddrPort) *executor.Registry {
	t.Helper()
	dir, err := cacheDir()
	if err != nil {
		t.Fatal(err)
	}
	client, err := egress.New(egress.Config{Endpoints: endpoints, DialTimeout: ample})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	pool := runner.New(runner.Config{Memory: 512 << 20, CacheDir: dir, StartTime: ample, Log: log})
	t.Cleanup(func() {
		_ = pool.Close()
		client.Close()
	})
	return executor.NewRegistry(map[string]executor.Executor{"javascript": javascript.New(pool, client, log)})
}

func config(t *testing.T, source string, parameters string) json.RawMessage {
	t.Helper()
	raw, err := json.Marshal(map[string]any{"source": source, "parameters": json.RawMessage(parameters)})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// report keeps what a run says.
type report struct {
	mu   sync.Mutex
	text string
}

func (r *report) add(format string, values ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.text += fmt.Sprintf(format, values...)
}

func (r *report) Output(stream executor.Stream, text []byte) { r.add("%s %s", stream, text) }
func (r *report) Progress(percent int, message string)       { r.add("%d%% %s\n", percent, message) }

// execute runs a script with ample time.
func execute(t *testing.T, types *executor.Registry, run executor.Run) executor.Outcome {
	t.Helper()
	if run.Timeout == 0 {
		run.Timeout = ample
	}
	ctx, cancel := context.WithTimeout(t.Context(), run.Timeout)
	defer cancel()
	return types.Execute(ctx, "javascript", run)
}

func TestExecute(t *testing.T) {
	t.Parallel()
	types := registry(t)
	said := &report{}
	id := uuid.MustParse("01890a5d-ac96-774b-bcce-b302099a8057")
	out := execute(t, types, executor.Run{
		ExecutionID: id, JobID: id, Attempt: 2, ScheduledAt: time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC), Report: said,
		Config:     config(t, `export default (run) => { console.log('hello'); run.progress(50, 'half'); return run }`, `{"a":1,"b":2}`),
		Parameters: json.RawMessage(`{"b":3}`),
	})
	want := `{"parameters":{"a":1,"b":3},"executionId":"01890a5d-ac96-774b-bcce-b302099a8057","jobId":"01890a5d-ac96-774b-bcce-b302099a8057","attempt":2,"scheduledAt":"2026-03-01T09:00:00Z","idempotencyKey":"01890a5d-ac96-774b-bcce-b302099a8057"}`
	if out.Err != nil || string(out.Result) != want {
		t.Errorf("the outcome is %s, %v, want %s", out.Result, out.Err, want)
	}
	if said.text != "log hello\n50% half\n" {
		t.Errorf("it said %q", said.text)
	}
	if out.MemoryPeakMB < 1 || out.MemoryPeakMB > 64 || out.CPUTime <= 0 {
		t.Errorf("it took %v MB and %v", out.MemoryPeakMB, out.CPUTime)
	}
}

// Failures have the type of their kind, and a script's own has its message and stack.
func TestFailures(t *testing.T) {
	t.Parallel()
	types := registry(t)
	for _, test := range []struct {
		name, source string
		timeout      time.Duration
		want         executor.ErrorType
		message      string
	}{
		{"thrown", "export default () => {\n  throw new Error('no stock')\n}", 0, executor.UserError, "Error: no stock"},
		{"memory", `export default () => { const a = []; for (;;) a.push(new Uint8Array(1 << 20)) }`, 0, executor.UserError, "the code wanted more memory than a run may have"},
		{"deadline", `export default () => { for (;;); }`, time.Second, executor.Timeout, "timed out after 1s"},
		{"not caught", `export default () => { for (;;) try { for (;;); } catch {} }`, time.Second, executor.Timeout, "timed out after 1s"},
		{"unreadable", `export default (`, 0, executor.UserError, "SyntaxError: unexpected token in expression: ''"},
		{"half a character", `export default () => '\ud800' + '\0'`, 0, "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			out := execute(t, types, executor.Run{Config: config(t, test.source, "{}"), Timeout: test.timeout})
			// On a busy machine the second may be up before a runner has started: then it gets more.
			for _, more := range []time.Duration{5 * time.Second, 25 * time.Second} {
				if out.Err != nil && strings.HasPrefix(out.Err.Message, "no runner was free within") {
					out = execute(t, types, executor.Run{Config: config(t, test.source, "{}"), Timeout: more})
					test.message = fmt.Sprintf("timed out after %s", more)
				}
			}
			switch {
			case test.want == "" && (out.Err != nil || string(out.Result) != `"\ufffd\ufffd"`):
				t.Errorf("the result is %q, %v", out.Result, out.Err)
			case test.want != "" && (out.Err == nil || out.Err.Type != test.want || out.Err.Message != test.message):
				t.Errorf("it ended with %v, want %s: %s", out.Err, test.want, test.message)
			}
			if test.name == "thrown" && !strings.Contains(out.Err.Stack, "job.js:2") {
				t.Errorf("the stack is %q", out.Err.Stack)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	types := registry(t)
	for _, test := range []struct{ name, config, want string }{
		{"good", `{"source":"export default () => 1","timeout":3,"parameters":{"a":1}}`, ""},
		{"syntax", `{"source":"export default () => {\n  return 1 +;\n}"}`, "config.source syntax line 2, column 13: SyntaxError: unexpected token in expression: ';'"},
		{"empty", `{"source":" \n"}`, "config.source required is empty"},
		{"absent", `{}`, "config.source required is missing; it must be a text"},
		{"large", `{"source":"` + strings.Repeat("/", 65537) + `"}`, "config.source length must have at most 65536 bytes"},
		{"parameters", `{"source":"export default 1","parameters":[]}`, "config.parameters type must be an object"},
		{"not run", `{"source":"for (;;);"}`, ""},
		{"deep", `{"source":"` + strings.Repeat("[", 60000) + `"}`, "config.source syntax "},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			validate := func() (got string) {
				for _, f := range types.Validate("javascript", json.RawMessage(test.config)) {
					got += f.Path + " " + f.Rule + " " + f.Message
				}
				return got
			}
			got := validate()
			// A machine may be too busy to read a script in its time: then it passes unread.
			for try := 1; try < 5 && got != test.want && got == ""; try++ {
				got = validate()
			}
			if got != test.want && (test.name != "deep" || !strings.HasPrefix(got, test.want)) {
				t.Errorf("it answers %q, want %q", got, test.want)
			}
		})
	}
	if faults := types.ValidateParameters("javascript", json.RawMessage(`{"source":"export default 1"}`), json.RawMessage(`[1]`)); len(faults) != 1 || faults[0].Path != "parameters" {
		t.Errorf("overrides that are no object: %v", faults)
	}
}

// A script calls out through the guard, and cannot say what the scheduler says.
func TestFetch(t *testing.T) {
	t.Parallel()
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/inside":
			http.Redirect(w, r, "http://127.0.0.1:8080/", http.StatusFound)
		case "/binary":
			_, _ = w.Write([]byte{0xff, 0, 0xfe})
		case "/large":
			_, _ = w.Write(make([]byte, 2<<20))
		default:
			_ = json.NewEncoder(w).Encode([]string{r.Method, r.Header.Get("X-Execution-Id"), r.Header.Get("X-Attempt"), r.Header.Get("Idempotency-Key"), r.Header.Get("A")})
		}
	}))
	defer target.Close()
	types := registry(t, netip.MustParseAddrPort(strings.TrimPrefix(target.URL, "http://")))
	source := `export default async ({ parameters: { url } }) => {
		const all = [];
		const say = async (made) => { try { all.push(await made()) } catch (e) { all.push(e.message) } };
		await say(async () => (await fetch(url, { method: 'PUT', headers: { A: 'b', 'Idempotency-Key': 'k' }, body: 'x' })).json());
		await say(async () => [...await (await fetch(url + '/binary')).bytes()]);
		await say(async () => (await fetch(url + '/binary')).text());
		for (const path of ['/large', '/inside']) await say(async () => (await fetch(url + path)).status);
		for (const other of ['http://127.0.0.1:1/', 'http://169.254.169.254/', 'http://[::ffff:10.0.0.1]/', 'http://localhost/', 'file:///etc/passwd', 'http://2130706433/', '/path'])
			await say(async () => (await fetch(other)).status);
		for (const name of ['Host', 'X-Execution-Id', 'Transfer-Encoding', 'x_tenant_id', 'a b']) await say(async () => (await fetch(url, { headers: { [name]: 'x' } })).status);
		await say(async () => (await fetch(url, { method: 'TRACE' })).status);
		return all;
	}`
	id := uuid.MustParse("01890a5d-ac96-774b-bcce-b302099a8057")
	out := execute(t, types, executor.Run{ExecutionID: id, Attempt: 1, Config: config(t, source, fmt.Sprintf(`{"url":%q}`, target.URL))})
	var got []any
	if err := json.Unmarshal(out.Result, &got); err != nil {
		t.Fatalf("%s, %v", out.Result, out.Err)
	}
	want := []string{
		"[PUT 01890a5d-ac96-774b-bcce-b302099a8057 1 k b]", "[255 0 254]", "the body is not UTF-8; use bytes()",
		"fetch failed: the answer has more than 1048576 bytes", "fetch failed: not allowed (loopback)",
		"fetch failed: not allowed (", "fetch failed: not allowed (link-local)", "fetch failed: not allowed (private)", "fetch failed: not allowed (loopback)",
		"fetch failed: the URL is not a valid absolute URL", "fetch failed: not allowed (host-number)", "fetch failed: the URL is not a valid absolute URL",
		"fetch failed: the header", "fetch failed: the header", "fetch failed: the header", "fetch failed: the header", "fetch failed: the header",
		"fetch failed: the method is none of",
	}
	if len(got) != len(want) {
		t.Fatalf("%d answers, want %d: %v", len(got), len(want), got)
	}
	for i, text := range want {
		if !strings.HasPrefix(fmt.Sprint(got[i]), text) {
			t.Errorf("answer %d is %v, want %s", i, got[i], text)
		}
	}
}

// A script reaches nothing on the inside, by no spelling of an address.
func TestScriptsDoNotReachTheInside(t *testing.T) {
	t.Parallel()
	types := registry(t)
	const source = `export default async ({ parameters: { urls } }) => {
		const all = [];
		for (const url of urls) await fetch(url).then((answer) => all.push('status ' + answer.status), (e) => all.push(e.message));
		return all;
	}`
	var urls []string
	for _, target := range egresstest.Hostile() {
		urls = append(urls, target.URL)
	}
	for some := range slices.Chunk(urls, 50) { // as many calls as a run may make
		raw, err := json.Marshal(map[string]any{"urls": some})
		if err != nil {
			t.Fatal(err)
		}
		out := execute(t, types, executor.Run{ExecutionID: uuid.New(), Attempt: 1, Config: config(t, source, string(raw))})
		var got []string
		if err := json.Unmarshal(out.Result, &got); err != nil || len(got) != len(some) {
			t.Fatalf("%d answers of %d: %s, %v", len(got), len(some), out.Result, out.Err)
		}
		for i, said := range got {
			if !strings.HasPrefix(said, "fetch failed: not allowed (") && said != "fetch failed: the URL is not a valid absolute URL" {
				t.Errorf("fetch of %s: %s", some[i], said)
			}
		}
	}
}
