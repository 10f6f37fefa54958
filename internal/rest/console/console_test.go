package console_test

import (
	"compress/gzip"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/scheduler-service/scheduler/internal/rest/console"
	"github.com/scheduler-service/scheduler/web"
)

// maxFirstLoad bounds the compressed bytes of the page, its styles, and the scripts
// that it loads at once.
const maxFirstLoad = 150 << 10

func get(t *testing.T, path string) *http.Response {
	t.Helper()
	handler, err := console.Handler(web.Build(), func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Header.Set("Accept-Encoding", "gzip")
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, r)
	return recorder.Result()
}

func read(t *testing.T, answer *http.Response) (content string, packed int) {
	t.Helper()
	raw, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	r, err := gzip.NewReader(strings.NewReader(string(raw)))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(plain), len(raw)
}

// The page loads only what stands beside it, all of it under the policy, and little.
func TestThePageIsSmallAndUnderThePolicy(t *testing.T) {
	t.Parallel()
	answer := get(t, "/console/")
	page, total := read(t, answer)
	if inline := regexp.MustCompile(`<script>|<style| on[a-z]+=| style=`).FindString(page); inline != "" {
		t.Errorf("the page has something inline: %s", inline)
	}
	loads := regexp.MustCompile(`(?:src|href)="([^"]*)"`).FindAllStringSubmatch(page, -1)
	if len(loads) < 3 {
		t.Fatalf("the page loads %v", loads)
	}
	for _, load := range loads {
		if !strings.HasPrefix(load[1], "/console/") {
			t.Fatalf("the page loads %s", load[1])
		}
		part := get(t, load[1])
		if _, bytes := read(t, part); strings.HasPrefix(load[1], "/console/assets/") {
			total += bytes
			if !strings.Contains(part.Header.Get("Cache-Control"), "immutable") {
				t.Errorf("%s: %s", load[1], part.Header.Get("Cache-Control"))
			}
		}
	}
	if total > maxFirstLoad {
		t.Errorf("the first load has %d bytes, more than %d", total, maxFirstLoad)
	}
	policy := answer.Header.Get("Content-Security-Policy")
	for _, part := range []string{"default-src 'none'", "script-src 'self';", "style-src 'self';", "require-trusted-types-for 'script'", "trusted-types 'none'", "frame-ancestors 'none'"} {
		if !strings.Contains(policy, part) {
			t.Errorf("the policy lacks %s: %s", part, policy)
		}
	}
	if answer.Header.Get("Cache-Control") != "no-cache" || answer.Header.Get("ETag") == "" {
		t.Errorf("the page is kept: %v", answer.Header)
	}
}

// imports are the scripts that a script cannot begin without; those that it fetches
// later stand in a call.
var imports = regexp.MustCompile(`(?:from|import)"\./([^"]+\.js)"`)

// A screen loads with the page, its own script and what both of them import.
func TestEachScreenLoadsLittle(t *testing.T) {
	t.Parallel()
	page, first := read(t, get(t, "/console/"))
	seen := map[string]bool{}
	var bytesOf func(path string) int
	bytesOf = func(path string) int {
		if seen[path] {
			return 0
		}
		seen[path] = true
		script, total := read(t, get(t, path))
		for _, one := range imports.FindAllStringSubmatch(script, -1) {
			total += bytesOf("/console/assets/" + one[1])
		}
		return total
	}
	for _, load := range regexp.MustCompile(`(?:src|href)="(/console/assets/[^"]*)"`).FindAllStringSubmatch(page, -1) {
		first += bytesOf(load[1])
	}
	for _, screen := range []string{"overview", "jobs", "job", "job-form", "executions", "execution"} {
		found, err := fs.Glob(web.Build(), "assets/"+screen+"-????????.js.gz")
		if err != nil || len(found) != 1 {
			t.Fatalf("%s: %v, %v", screen, found, err)
		}
		kept := maps.Clone(seen)
		if total := first + bytesOf("/console/"+strings.TrimSuffix(found[0], ".gz")); total > maxFirstLoad {
			t.Errorf("%s as the first screen has %d bytes, more than %d", screen, total, maxFirstLoad)
		} else {
			t.Logf("%s: %d bytes", screen, total)
		}
		seen = kept
	}
}

// Every address of the page's own gets the page; a file that is not there does not.
func TestAddressesGetThePage(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]int{
		"/console": http.StatusPermanentRedirect, "/console/": http.StatusOK, "/console/jobs": http.StatusOK, "/console/jobs/1.5/edit": http.StatusOK,
		"/console/assets/gone.js": http.StatusTeapot, "/console/icon.svg": http.StatusOK,
	} {
		if got := get(t, path).StatusCode; got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
	}
}

func TestBuildWithoutAPageIsRefused(t *testing.T) {
	t.Parallel()
	for _, build := range []fstest.MapFS{{"assets/a.js.gz": {}}, {"index.html.gz": {}, "data.bin.gz": {}}} {
		if _, err := console.Handler(build, nil); err == nil {
			t.Errorf("%v is served", build)
		}
	}
}
