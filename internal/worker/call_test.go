package worker

import "testing"

// A worker that is called all the time polls seldom while its polls find nothing, and
// soon where there is something to find.
func TestQuietTime(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		seen     pollResult
		hintless bool
		soon     bool
	}{
		{name: "nothing waits, and hints come"},
		{name: "nothing waits, and no hints come", hintless: true, soon: true},
		{name: "some was claimed", seen: pollResult{waits: true, won: 3}, soon: true},
		{name: "others were quicker", seen: pollResult{waits: true}, soon: true},
		{name: "no slot was free", seen: pollResult{full: true}, soon: true},
	} {
		w := &Worker{}
		w.hintless.Store(test.hintless)
		want := pollCalm
		if test.soon {
			want = pollMin
		}
		if got := (&poller{worker: w}).quietTime(test.seen); got != want {
			t.Errorf("%s: %v, want %v", test.name, got, want)
		}
	}
}
