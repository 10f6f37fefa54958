package chaos

import (
	"io"
	"strings"
	"testing"
	"time"
)

// An upgrade is told in one sentence, with the way back where that was gone.
func TestUpgradeSentence(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	at := func(kind string, from, to int) fault {
		f := fault{kind: kind, begun: begin.Add(time.Duration(from) * time.Second), healed: begin.Add(time.Duration(to) * time.Second)}
		f.lasts = f.healed.Sub(f.begun)
		return f
	}
	e := &evidence{faults: []fault{at("migrate", 6, 8), at(kindReplace, 14, 15), at(kindReplace, 16, 18), at(kindBack, 24, 25), at(kindBack, 26, 29)}}
	for _, test := range []struct {
		c    Config
		want string
	}{
		{Config{Seed: 4, Duration: time.Minute, Earlier: "abc"}, "-upgrade-from abc`: the migrations took 2.0 s, 2 processes were replaced in 4 s; 7 calls"},
		{Config{Seed: 4, Duration: time.Minute, Earlier: "abc", Back: true}, "-upgrade-from abc -back`: the migrations took 2.0 s, 2 processes were replaced in 4 s, and put back in 5 s on the schema as it was then; 7 calls"},
	} {
		if got := upgradeSentence(test.c, e, summary{Calls: 7}); !strings.Contains(got, test.want) {
			t.Errorf("told %s\nwant %s", got, test.want)
		}
	}
}

// An upgrade that outlasts the load shows nothing, and the way back has to be from somewhere.
func TestUpgradeIsUnderLoad(t *testing.T) {
	t.Parallel()
	if err := underLoad(Config{Duration: time.Minute}, time.Minute); err != nil {
		t.Error(err)
	}
	if err := underLoad(Config{Duration: time.Minute}, time.Minute+time.Second); err == nil {
		t.Error("an upgrade after the load counts")
	}
	if _, err := Parse([]string{"-back"}, io.Discard); err == nil {
		t.Error("-back alone is taken")
	}
	if c, err := Parse([]string{"-back", "-upgrade-from", "abc"}, io.Discard); err != nil || !c.Back || c.Faults {
		t.Errorf("read %+v %v", c, err)
	}
}
