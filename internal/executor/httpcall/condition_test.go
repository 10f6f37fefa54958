package httpcall_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/scheduler-service/scheduler/internal/executor"
)

func quoted(text string) string {
	raw, _ := json.Marshal(text)
	return string(raw)
}

func TestSuccessWhen(t *testing.T) {
	t.Parallel()
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-State", "done")
		if r.URL.Path == "/text" {
			_, _ = w.Write([]byte("OK: 12 rows"))
			return
		}
		_, _ = w.Write([]byte(`{"ok":true,"failed":0,"total":3,"items":[{"state":"done","n":1},{"state":"open","n":2}],"none":null}`))
	})
	for expression, fails := range map[string]string{
		`body.ok`:                  "",
		`body.failed == 0`:         "",
		`status == 200 && body.ok`: "",
		`headers["x-state"] in ["done", "skipped"]`: "",
		`count(body.items, .state == "done") == 1`:  "",
		`any(body.items, .state matches "^op" )`:    "",
		`len(filter(body.items, #.n > 1)) == 1`:     "",
		`body?.missing?.deep ?? true`:               "",
		`body.total - body.failed * 2 == 3`:         "",
		`not body.ok`:                               "the answer does not meet successWhen: not body.ok",
		`status >= 300`:                             "the answer does not meet successWhen: status >= 300",
		`body.none.deep == 1`:                       "successWhen cannot be decided: cannot fetch deep from <nil> (at character 11)",
		`body.total`:                                "successWhen cannot be decided: invalid operation: bool(float64)",
		`body.ok > 1`:                               "successWhen cannot be decided: ",
		`all(body.items, .state)`:                   "successWhen cannot be decided: ",
		`len(body.total) > 1`:                       "successWhen cannot be decided: ",
		`int(body.items[0].state) == 1`:             "successWhen cannot be decided: ",
		`body.items[7].n == 1`:                      "successWhen cannot be decided: ",
		`body matches "a"`:                          "successWhen cannot be decided: ",
	} {
		out := call(t, t.Context(), run(server, `{"url":"$URL","successWhen":`+quoted(expression)+`}`))
		switch {
		case fails == "" && out.Err != nil:
			t.Errorf("%s: %v", expression, out.Err)
		case fails != "" && (out.Err == nil || out.Err.Type != executor.UserError || !strings.HasPrefix(out.Err.Message, fails)):
			t.Errorf("%s: %v, want %s", expression, out.Err, fails)
		}
		if out.Result == nil || strings.Contains(expression, "\n") {
			t.Errorf("%s: no result", expression)
		}
	}
	if out := call(t, t.Context(), run(server, `{"url":"$URL/text","successWhen":"body startsWith \"OK\" and body contains \"12\""}`)); out.Err != nil {
		t.Error(out.Err)
	}
}

// Both count: the status first, then the expression.
func TestSuccessWhenDoesNotReplaceTheStatus(t *testing.T) {
	t.Parallel()
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
	out := call(t, t.Context(), run(server, `{"url":"$URL","successWhen":"status == 404"}`))
	if out.Err == nil || !strings.HasPrefix(out.Err.Message, "unexpected status 404") {
		t.Errorf("outcome %v", out.Err)
	}
	out = call(t, t.Context(), run(server, `{"url":"$URL","successWhen":"status == 404","expectedStatusCode":"100-599"}`))
	if out.Err != nil {
		t.Errorf("outcome %v", out.Err)
	}
}

func TestSuccessWhenIsCheckedBeforehand(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	for expression, want := range map[string]string{
		``:                               "unexpected token",
		`status ==`:                      "unexpected token",
		`status`:                         "expected bool",
		`status == "a"`:                  "mismatched types int and string",
		`stat == 200`:                    "unknown name stat",
		`headers.etag > 1`:               "mismatched types",
		`$env.status == 200`:             "none of status, headers and body",
		`env("PATH") == ""`:              "",
		`{{secret:x}} == 1`:              "",
		`now() > date("2020-01-01")`:     "none of the functions",
		`len(map(body, # + #)) > 1`:      "none of the functions",
		`reduce(body, #acc + #) == 1`:    "none of the functions",
		`len(repeat("a", 99999999)) > 1`: "none of the functions",
		`len(1..1000000000) > 1`:         "none of the operators",
		`2 ** 2 == 4`:                    "none of the operators",
		`let x = body; x == 1`:           "may use comparisons",
		`any(body, any(#, # == 1))`:      "inside another one",
		`any(body, # == body)`:           "sees its item alone",
		`any(body, # == status)`:         "sees its item alone",
		`body matches body`:              "a text in quotes",
		`body matches "(a{1000}){1000}"`: "with a count in braces",
		`body matches "` + strings.Repeat("a", 101) + `"`: "more than 100 bytes",
		`body matches "("`: "error parsing regexp",
		strings.Repeat(`body matches "a" or `, 4) + `body matches "a"`: "more than 4 times",
		strings.Repeat(`status == 1 or `, 40) + `true`:                 "more than 100 parts",
		strings.Repeat(`status == 1 or `, 70) + `true`:                 "at most 1000 bytes",
		strings.Repeat("(", 499) + "true" + strings.Repeat(")", 497):   "",
	} {
		faults := e.Validate(json.RawMessage(`{"url":"https://example.com","successWhen":` + quoted(expression) + `}`))
		if len(faults) != 1 || faults[0].Path != "config.successWhen" || !strings.Contains(faults[0].Message, want) || strings.Contains(faults[0].Message, "\n") {
			t.Errorf("%.60s: %v, want %q", expression, faults, want)
		}
	}
}

// The forms that cost most, over the largest body, come to an end.
func TestExpensiveConditionsEnd(t *testing.T) {
	t.Parallel()
	items := `[` + strings.Repeat(`0,`, 32_700) + `1]`
	text := strings.Repeat("a", 65_000)
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/items" {
			_, _ = w.Write([]byte(items))
			return
		}
		_, _ = w.Write([]byte(text))
	})
	for path, expressions := range map[string][]string{
		"/items": {
			strings.Repeat(`filter(`, 20) + `body` + strings.Repeat(`, # >= 0)`, 20) + ` == []`,
			`all(body, ` + strings.Repeat(`# + # >= 0 and `, 14) + `false)`,
			strings.Repeat(`body != body or `, 24) + `false`,
		},
		"/text": {
			`body matches "(((a*)*)*)*b" or body matches "(a|a|a|a|a|a|a|a|a|a|aa|aaa)*$b" or body matches "(.*)(.*)(.*)(.*)(.*)(.*)(.*)b" or body matches "a?a?a?a?a?a?a?a?b"`,
			`len(` + strings.Repeat(`body + `, 40) + `body) == 0`,
			`body in [` + strings.Repeat(`body + "b",`, 25) + `""]`,
		},
	} {
		for _, expression := range expressions {
			out := call(t, t.Context(), run(server, `{"url":"$URL`+path+`","successWhen":`+quoted(expression)+`}`))
			if out.Err == nil || out.Err.Type != executor.UserError {
				t.Errorf("%.60s: %v", expression, out.Err)
			}
		}
	}
}

// A body that is cut is a text, and the reason says so.
func TestConditionOnACutBody(t *testing.T) {
	t.Parallel()
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"pad":"` + strings.Repeat("x", 70_000) + `","ok":true}`))
	})
	out := call(t, t.Context(), run(server, `{"url":"$URL","successWhen":"body.ok"}`))
	if out.Err == nil || out.Err.Type != executor.UserError || !strings.Contains(out.Err.Message, "more than 65536 bytes") {
		t.Errorf("outcome %v", out.Err)
	}
}
