package httpcall_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestValidate(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	const url = `"url":"https://example.com/hook?a=b"`
	many := make([]string, 65)
	for i := range many {
		many[i] = fmt.Sprintf(`"X-%d":"v"`, i)
	}
	for _, test := range []struct {
		name, config string
		want         []string
	}{
		{"least", `{` + url + `}`, nil},
		{"all", `{` + url + `,"method":"POST","headers":{"Authorization":"Bearer x","X-Api-Key":"é\tk"},"body":{"a":[1]},` +
			`"timeout":2.5,"expectedStatusCode":[200,"202-204","3xx"],"retryOnStatusCodes":[409,"500-599"]}`, nil},
		{"one code, one range", `{` + url + `,"expectedStatusCode":"200-299","retryOnStatusCodes":503}`, nil},
		{
			"everything wrong at once", `{"url":"ftp://x","method":"get","headers":{"Host":"x"},"body":"b","timeout":0,"expectedStatusCode":99,"retryOnStatusCodes":[600],"more":1}`,
			[]string{
				"config.more unknown", "config.url scheme", "config.method enum", "config.headers.Host reserved", "config.timeout range",
				"config.expectedStatusCode status", "config.retryOnStatusCodes[0] status",
			},
		},
		{"no url", `{}`, []string{"config.url required"}},
		{"url is no text", `{"url":1}`, []string{"config.url type"}},
		{"empty url", `{"url":""}`, []string{"config.url scheme"}},
		{"no URL at all", `{"url":"http://[::1"}`, []string{"config.url syntax"}},
		{"long url", `{"url":"https://example.com/` + strings.Repeat("a", 4096) + `"}`, []string{"config.url length"}},
		{"loopback", `{"url":"http://127.0.0.1/"}`, []string{"config.url loopback"}},
		{"metadata", `{"url":"http://169.254.169.254/"}`, []string{"config.url link-local"}},
		{"localhost", `{"url":"http://localhost/"}`, []string{"config.url loopback"}},
		{"password", `{"url":"http://u:p@example.com/"}`, []string{"config.url userinfo"}},
		{"port", `{"url":"http://example.com:22/"}`, []string{"config.url port"}},
		{"unknown method", `{` + url + `,"method":"TRACE"}`, []string{"config.method enum"}},
		{"body of a HEAD", `{` + url + `,"method":"HEAD","body":"x"}`, []string{"config.body conflict"}},
		{"null body of a HEAD", `{` + url + `,"method":"HEAD","body":null}`, nil},
		{"large body", `{` + url + `,"body":"` + strings.Repeat("a", 256<<10+1) + `"}`, []string{"config.body length"}},
		{"negative timeout", `{` + url + `,"timeout":-1}`, []string{"config.timeout range"}},
		{"timeout of a text", `{` + url + `,"timeout":"5s"}`, []string{"config.timeout type"}},
		{"timeout of two days", `{` + url + `,"timeout":172800}`, []string{"config.timeout range"}},
		{"empty list", `{` + url + `,"expectedStatusCode":[]}`, []string{"config.expectedStatusCode length"}},
		{"range the wrong way", `{` + url + `,"expectedStatusCode":"299-200"}`, []string{"config.expectedStatusCode status"}},
		{"code of a fraction", `{` + url + `,"expectedStatusCode":200.5}`, []string{"config.expectedStatusCode status"}},
		{"code with a sign", `{` + url + `,"expectedStatusCode":"+200"}`, []string{"config.expectedStatusCode status"}},
		{"list of lists", `{` + url + `,"expectedStatusCode":[200,[201]]}`, []string{"config.expectedStatusCode[1] status"}},
		{"expected and retried", `{` + url + `,"expectedStatusCode":"2xx","retryOnStatusCodes":[202]}`, []string{"config.retryOnStatusCodes conflict"}},
		{"headers of numbers", `{` + url + `,"headers":{"A":1}}`, []string{"config.headers type"}},
		{"one header twice", `{` + url + `,"headers":{"X-A":"1","x-a":"2"}}`, []string{"config.headers.x-a duplicate"}},
		{"65 headers", `{` + url + `,"headers":{` + strings.Join(many, ",") + `}}`, []string{"config.headers length"}},
		{"large headers", `{` + url + `,"headers":{"A":"` + strings.Repeat("a", 16<<10) + `"}}`, []string{"config.headers length"}},
		{"field twice", `{` + url + `,` + url + `}`, []string{"config.url duplicate"}},
		{"not an object", `[1]`, []string{"config type"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := e.Validate(json.RawMessage(test.config))
			if diff := cmp.Diff(test.want, rules(got)); diff != "" {
				t.Errorf("faults differ (-want +got):\n%s", diff)
			}
			for _, f := range got {
				if f.Message == "" || strings.Contains(f.Message, "u:p") {
					t.Errorf("message of %s = %q", f.Path, f.Message)
				}
			}
		})
	}
}

// A job has a circuit breaker for its host unless it leaves it out.
func TestHost(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	for config, want := range map[string]string{
		`{"url":"https://a.example:8443/x"}`:                        "a.example",
		`{"url":"https://a.example/","circuitBreaker":true}`:        "a.example",
		`{"url":"https://a.example/","circuitBreaker":null}`:        "a.example",
		`{"url":"https://a.example/","circuitBreaker":false}`:       "",
		`{"url":"https://a.example/","circuitBreaker":"sometimes"}`: "",
	} {
		if got := e.Host([]byte(config)); got != want {
			t.Errorf("%s: %q", config, got)
		}
	}
	if got := rules(e.Validate([]byte(`{"url":"https://a.example/","circuitBreaker":"sometimes"}`))); len(got) != 1 || got[0] != "config.circuitBreaker type" {
		t.Errorf("a text is refused with %v", got)
	}
}

func TestValidateFollowsTheOperator(t *testing.T) {
	t.Parallel()
	e := newExecutor(t, "10.1.0.0/16", "::1/128")
	for _, test := range []struct {
		url  string
		want []string
	}{
		{"http://10.1.2.3:8080/", nil},
		{"http://10.2.2.3:8080/", []string{"config.url private"}},
		{"http://localhost:8080/", nil},
		{"http://127.0.0.1:8080/", []string{"config.url loopback"}},
		{"http://10.1.2.3:22/", []string{"config.url port"}},
	} {
		t.Run(test.url, func(t *testing.T) {
			t.Parallel()
			got := e.Validate(json.RawMessage(`{"url":"` + test.url + `"}`))
			if diff := cmp.Diff(test.want, rules(got)); diff != "" {
				t.Errorf("faults differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHeadersThatAJobMayNotSet(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	for _, test := range []struct{ header, want string }{
		{`"Host":"x"`, "config.headers.Host reserved"},
		{`"HOST":"x"`, "config.headers.HOST reserved"},
		{`"Content-Length":"0"`, "config.headers.Content-Length reserved"},
		{`"content_length":"0"`, "config.headers.content_length reserved"},
		{`"Transfer-Encoding":"chunked"`, "config.headers.Transfer-Encoding reserved"},
		{`"Connection":"X-Api-Key"`, "config.headers.Connection reserved"},
		{`"Keep-Alive":"1"`, "config.headers.Keep-Alive reserved"},
		{`"TE":"trailers"`, "config.headers.TE reserved"},
		{`"Trailer":"x"`, "config.headers.Trailer reserved"},
		{`"Upgrade":"h2c"`, "config.headers.Upgrade reserved"},
		{`"HTTP2-Settings":"x"`, "config.headers.HTTP2-Settings reserved"},
		{`"Expect":"100-continue"`, "config.headers.Expect reserved"},
		{`"Proxy-Authorization":"x"`, "config.headers.Proxy-Authorization reserved"},
		{`"Proxy-Connection":"x"`, "config.headers.Proxy-Connection reserved"},
		{`"X-Forwarded-For":"10.0.0.1"`, "config.headers.X-Forwarded-For reserved"},
		{`"x_forwarded_for":"10.0.0.1"`, "config.headers.x_forwarded_for reserved"},
		{`"Forwarded":"for=x"`, "config.headers.Forwarded reserved"},
		{`"X-Real-IP":"x"`, "config.headers.X-Real-IP reserved"},
		{`"Via":"x"`, "config.headers.Via reserved"},
		{`"X-Service-Token":"x"`, "config.headers.X-Service-Token reserved"},
		{`"X_Service_Token":"x"`, "config.headers.X_Service_Token reserved"},
		{`"X-Tenant-ID":"x"`, "config.headers.X-Tenant-ID reserved"},
		{`"X-Execution-Id":"x"`, "config.headers.X-Execution-Id reserved"},
		{`"X-Job-Id":"x"`, "config.headers.X-Job-Id reserved"},
		{`"X-Job-Anything":"x"`, "config.headers.X-Job-Anything reserved"},
		{`"X-Scheduled-At":"x"`, "config.headers.X-Scheduled-At reserved"},
		{`"X-Attempt":"1"`, "config.headers.X-Attempt reserved"},
		{`"Idempotency-Key":"x"`, "config.headers.Idempotency-Key reserved"},
		{`"":"x"`, "config.headers characters"},
		{`"A B":"x"`, "config.headers characters"},
		{`"A:":"x"`, "config.headers characters"},
		{`"Host ":"x"`, "config.headers characters"},
		{`"A\r\nB":"x"`, "config.headers characters"},
		{`"Ä":"x"`, "config.headers characters"},
		{`"A":"x\r\nX-Service-Token: y"`, "config.headers.A characters"},
		{`"A":"x\ny"`, "config.headers.A characters"},
		{`"A":"x\ry"`, "config.headers.A characters"},
		{`"A":"x\u0001y"`, "config.headers.A characters"},
		{`"A":"x\u007fy"`, "config.headers.A characters"},
		{`"A":"x\u0000y"`, "config characters;config.headers.A characters"},
	} {
		t.Run(test.header, func(t *testing.T) {
			t.Parallel()
			want := strings.Split(test.want, ";")
			got := e.Validate(json.RawMessage(`{"url":"https://example.com","headers":{` + test.header + `}}`))
			if diff := cmp.Diff(want, rules(got)); diff != "" {
				t.Errorf("faults of the configuration differ (-want +got):\n%s", diff)
			}
			for i := range want {
				want[i] = strings.Replace(want[i], "config", "parameters", 1)
			}
			got = e.ValidateParameters(json.RawMessage(`{"url":"https://example.com"}`), json.RawMessage(`{"headers":{`+test.header+`}}`))
			if diff := cmp.Diff(want, rules(got)); diff != "" {
				t.Errorf("faults of the parameters differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestValidateParameters(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	for _, test := range []struct {
		name, config, parameters string
		want                     []string
	}{
		{"all", `{"url":"https://example.com"}`, `{"body":[1],"headers":{"A":"b"},"query":{"q":"x"}}`, nil},
		{"none", `{"url":"https://example.com"}`, `null`, nil},
		{"the target stays", `{"url":"https://example.com"}`, `{"url":"https://evil.test","method":"PUT"}`, []string{"parameters.method unknown", "parameters.url unknown"}},
		{"body of a HEAD", `{"url":"https://example.com","method":"HEAD"}`, `{"body":1}`, []string{"parameters.body conflict"}},
		{"query of numbers", `{"url":"https://example.com"}`, `{"query":{"q":1}}`, []string{"parameters.query type"}},
		{"long query", `{"url":"https://example.com"}`, `{"query":{"q":"` + strings.Repeat("a", 4096) + `"}}`, []string{"parameters.query length"}},
		{"the job itself is wrong", `{"url":"http://10.0.0.1"}`, `{}`, []string{"config.url private"}},
		{"not an object", `{"url":"https://example.com"}`, `"x"`, []string{"parameters type"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := e.ValidateParameters(json.RawMessage(test.config), json.RawMessage(test.parameters))
			if diff := cmp.Diff(test.want, rules(got)); diff != "" {
				t.Errorf("faults differ (-want +got):\n%s", diff)
			}
		})
	}
}
