package rest_test

import (
	"flag"
	"math"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/clock"
	"github.com/scheduler-service/scheduler/internal/identity"
)

// timing turns on what is true of times only, which a machine with other work
// makes noise of: `go test ./internal/rest -run Timing -timing`, alone on it.
// Other tests assert what must hold at any load: the same bytes for another tenant's
// things and for those that do not exist (TestAnotherTenantsThingsDoNotExist),
// and comparisons that skip nothing (TestTokensAreComparedInConstantTime).
var timing = flag.Bool("timing", false, "compare times of answers")

// apart is how far two samples of times differ, in standard deviations of
// Mann and Whitney's U: one in a billion beyond 6 if they do not.
func apart(a, b []float64) float64 {
	type timed struct {
		took  float64
		first bool
	}
	all := make([]timed, 0, len(a)+len(b))
	for _, took := range a {
		all = append(all, timed{took, true})
	}
	for _, took := range b {
		all = append(all, timed{took, false})
	}
	slices.SortFunc(all, func(x, y timed) int {
		switch {
		case x.took < y.took:
			return -1
		case x.took > y.took:
			return 1
		}
		return 0
	})
	sum := 0.0
	for i := 0; i < len(all); {
		j := i
		for j < len(all) && all[j].took == all[i].took {
			j++
		}
		for k := i; k < j; k++ { // equal ones share their ranks
			if all[k].first {
				sum += float64(i+j+1) / 2
			}
		}
		i = j
	}
	n, m := float64(len(a)), float64(len(b))
	return (sum - n*(n+1)/2 - n*m/2) / math.Sqrt(n*m*(n+m+1)/12)
}

// interleaved times two calls in turns, so that what drifts meets both.
func interleaved(rounds int, first, second func()) (a, b []float64) {
	measure := func(call func()) float64 {
		began := clock.Start()
		call()
		return float64(began.Elapsed().Nanoseconds())
	}
	for i := range rounds {
		if i%2 == 0 {
			a, b = append(a, measure(first)), append(b, measure(second))
		} else {
			b, a = append(b, measure(second)), append(a, measure(first))
		}
	}
	return a, b
}

// The test of the tests: samples that differ are told apart, equal ones are not.
func TestSamplesAreToldApart(t *testing.T) {
	t.Parallel()
	var even, odd, later []float64
	for i := range 2000 {
		even, odd, later = append(even, float64(i*2%1999)), append(odd, float64((i*2+1000)%1999)), append(later, float64(i*2%1999)+150)
	}
	if z := apart(even, odd); math.Abs(z) > 3 {
		t.Errorf("equal samples are %.1f apart", z)
	}
	if z := apart(even, later); math.Abs(z) < 6 {
		t.Errorf("samples that differ are %.1f apart", z)
	}
}

func TestTimingOfWhatIsAnothers(t *testing.T) {
	if !*timing {
		t.Skip("only with -timing, alone on a machine")
	}
	b := setup(t)
	foreign := base + "/jobs/" + b.makeJob(t, b.ours).ID.String()
	token := b.token(t, b.theirs, identity.Admin)
	ask := func(path string) {
		if got := b.send(request{method: "GET", path: path, token: token}); got.status != http.StatusNotFound {
			t.Fatalf("answered %d", got.status)
		}
	}
	for range 200 {
		ask(foreign)
	}
	first, second := interleaved(2000, func() { ask(foreign) }, func() { ask(base + "/jobs/" + uuid.NewString()) })
	z := apart(first, second)
	t.Logf("another tenant's id and a random one are %.1f apart", z)
	if math.Abs(z) > 6 {
		t.Errorf("an id of another tenant is told from a random one by time: %.1f", z)
	}
}

func TestTimingOfServiceTokens(t *testing.T) {
	if !*timing {
		t.Skip("only with -timing, alone on a machine")
	}
	tokens := identity.NewPeerTokens(identity.Unnamed(serviceToken, nextToken)...)
	guess := func(text string) func() {
		h := http.Header{"X-Service-Token": {text}}
		return func() {
			if _, err := tokens.Authenticate(h, netip.Addr{}); err == nil {
				t.Fatal("a guess was believed")
			}
		}
	}
	early, late := guess("X"+serviceToken[1:]), guess(serviceToken[:len(serviceToken)-1]+"X")
	none := guess(strings.Repeat("X", len(serviceToken)))
	for name, pair := range map[string][2]func(){"first and last byte": {early, late}, "all and last byte": {none, late}} {
		first, second := interleaved(10_000, pair[0], pair[1])
		z := apart(first, second)
		t.Logf("%s: %.1f apart", name, z)
		if math.Abs(z) > 6 {
			t.Errorf("a guess that is wrong in the %s is told by time: %.1f", name, z)
		}
	}
}
