package reference_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/scheduler-service/scheduler/internal/rest/reference"
)

const contract = `{"openapi":"3.0.3"}`

func get(t *testing.T, path string, header map[string]string) *http.Response {
	t.Helper()
	files, err := reference.Gather([]byte(contract))
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for name, value := range header {
		r.Header.Set(name, value)
	}
	recorder := httptest.NewRecorder()
	handler := files.Handler(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	handler.ServeHTTP(recorder, r)
	return recorder.Result()
}

func body(t *testing.T, answer *http.Response) string {
	t.Helper()
	var from io.Reader = answer.Body
	if answer.Header.Get("Content-Encoding") == "gzip" {
		unpacked, err := gzip.NewReader(from)
		if err != nil {
			t.Fatal(err)
		}
		from = unpacked
	}
	raw, err := io.ReadAll(from)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// The page loads only what stands beside it, each part is there, packed or not,
// and all of it is under the policy.
func TestThePageNeedsNobodyElse(t *testing.T) {
	t.Parallel()
	page := body(t, get(t, "/docs/", nil))
	loads := regexp.MustCompile(`(?:src|href)="([^"]*)"`).FindAllStringSubmatch(page, -1)
	if len(loads) < 4 {
		t.Fatalf("the page loads %v", loads)
	}
	for _, load := range loads {
		name := load[1]
		if strings.ContainsAny(name, ":/") {
			t.Errorf("the page loads %s", name)
			continue
		}
		plain, packed := get(t, "/docs/"+name, nil), get(t, "/docs/"+name, map[string]string{"Accept-Encoding": "gzip, br"})
		if plain.StatusCode != http.StatusOK || packed.Header.Get("Content-Encoding") != "gzip" || plain.Header.Get("Content-Encoding") != "" {
			t.Errorf("%s: %d, encoded %q and %q", name, plain.StatusCode, plain.Header.Get("Content-Encoding"), packed.Header.Get("Content-Encoding"))
		}
		if text := body(t, plain); text == "" || text != body(t, packed) {
			t.Errorf("%s: unpacked and packed differ", name)
		}
		policy := plain.Header.Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'none'; script-src 'self';") || strings.Contains(policy, "http") || strings.Contains(policy, "*") {
			t.Errorf("%s: policy %q", name, policy)
		}
	}
	if inline := regexp.MustCompile(`<script>|<style| on[a-z]+=| style=`).FindString(page); inline != "" {
		t.Errorf("the page has something inline: %s", inline)
	}
}

func TestTheContractStandsBesideThePage(t *testing.T) {
	t.Parallel()
	answer := get(t, "/docs/openapi.json", nil)
	if got := body(t, answer); got != contract || answer.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%s: %s", answer.Header.Get("Content-Type"), got)
	}
	again := get(t, "/docs/openapi.json", map[string]string{"If-None-Match": answer.Header.Get("ETag")})
	if again.StatusCode != http.StatusNotModified {
		t.Errorf("asked again with its tag: %d", again.StatusCode)
	}
}

func TestOtherPathsAreMissing(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/docs/nothing", "/docs/../openapi.json", "/docs/reference.go", "/docs//", "/docs/swagger-ui.css.gz"} {
		if got := get(t, path, nil).StatusCode; got != http.StatusTeapot {
			t.Errorf("%s: %d", path, got)
		}
	}
	if moved := get(t, "/docs", nil); moved.StatusCode != http.StatusPermanentRedirect || moved.Header.Get("Location") != "docs/" {
		t.Errorf("%d to %q", moved.StatusCode, moved.Header.Get("Location"))
	}
}

// The token outlives a reload and not the tab.
func TestThePageKeepsTheTokenForTheTab(t *testing.T) {
	t.Parallel()
	script := body(t, get(t, "/docs/start.js", nil))
	for _, part := range []string{"sessionStorage.setItem(", "sessionStorage.getItem(", "sessionStorage.removeItem("} {
		if !strings.Contains(script, part) {
			t.Errorf("the page has no %s", part)
		}
	}
	if strings.Contains(script, "localStorage") || !strings.Contains(script, "persistAuthorization: false") {
		t.Error("the page keeps the token on disk")
	}
}
