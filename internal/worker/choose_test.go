package worker

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/dispatch"
)

func TestChoose(t *testing.T) {
	t.Parallel()
	tenants := map[byte]uuid.UUID{'a': {1}, 'b': {2}, 'c': {3}}
	for _, test := range []struct {
		name       string
		found      string // tenants of the candidates, in order
		busy       string // tenants of the runs
		open, kept int
		want       string // chosen ones; upper case may have a kept slot
	}{
		{name: "nothing waits", busy: "aab", open: 3, kept: 1},
		{name: "no slot is free", found: "ab", busy: "c"},
		{name: "open slots go in order", found: "abab", open: 3, kept: 1, want: "ABa"},
		{name: "a kept slot is for who has none", found: "aabc", busy: "aaa", kept: 2, want: "BC"},
		{name: "and for no more than one each", found: "bbbc", busy: "aaa", kept: 2, want: "BC"},
		{name: "open ones are used first", found: "abac", busy: "a", open: 2, kept: 1, want: "aBC"},
		{name: "who comes late finds none", found: "abc", kept: 2, want: "AB"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			busy, names := map[uuid.UUID]int{}, map[uuid.UUID]string{}
			for name, id := range tenants {
				busy[id], names[id] = strings.Count(test.busy, string(name)), string(name)
			}
			var found []dispatch.Candidate
			for i := range len(test.found) {
				found = append(found, dispatch.Candidate{ID: uuid.New(), Tenant: tenants[test.found[i]]})
			}
			var got string
			for _, c := range choose(found, busy, test.open, test.kept) {
				name := names[c.Tenant]
				if c.kept {
					name = strings.ToUpper(name)
				}
				got += name
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// Slots that are kept are full before any other is open again.
func TestSlotsAreKeptFirst(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]int{1: 0, 7: 0, 8: 1, 31: 1, 32: 2, 100: 6, 10_000: 16} {
		if got := keep(n); got != want {
			t.Errorf("of %d slots %d are kept, want %d", n, got, want)
		}
	}
	s := newSlots(32)
	if n := s.take(t.Context(), 100); n != 30 {
		t.Fatalf("%d open slots, want 30", n)
	}
	if s.takeNow(false) || !s.takeNow(true) || !s.takeNow(true) || s.takeNow(true) {
		t.Fatal("the two kept slots are for those who may have them")
	}
	s.give()
	s.give()
	if open, kept := s.free(); open != 0 || kept != 2 {
		t.Errorf("given back: %d open, %d kept", open, kept)
	}
	s.give()
	if open, kept := s.free(); open != 1 || kept != 2 || s.taken() != 29 {
		t.Errorf("and one more: %d open, %d kept, %d taken", open, kept, s.taken())
	}
}

// Runs that are about to begin count as runs: the next poll is fair beside them.
func TestBusyCountsWhatIsAboutToBegin(t *testing.T) {
	t.Parallel()
	a, b, token := uuid.UUID{1}, uuid.UUID{2}, uuid.UUID{3}
	inc := &incarnation{running: map[uuid.UUID]activeRun{{4}: {tenant: a}}, claiming: map[uuid.UUID][]uuid.UUID{}}
	inc.claims(token)
	inc.begins(token, []dispatch.Claimed{{Tenant: a}, {Tenant: b}})
	if diff := cmp.Diff(map[uuid.UUID]int{a: 2, b: 1}, inc.busy()); diff != "" {
		t.Errorf("while they begin (-want +got):\n%s", diff)
	}
	inc.claimed(token)
	if diff := cmp.Diff(map[uuid.UUID]int{a: 1}, inc.busy()); diff != "" || inc.underWay(token) {
		t.Errorf("after that (-want +got):\n%s", diff)
	}
}
