package schedule

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/schedule/cron"
)

// ZoneNames lists every zone of this machine, and a few where it has no files.
func ZoneNames(t testing.TB) []string {
	t.Helper()
	names := []string{"UTC", "America/New_York", "Africa/Casablanca", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Cairo", "Asia/Gaza"}
	const root = "/usr/share/zoneinfo"
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name := strings.TrimPrefix(path, root+"/")
		if err == nil && !entry.IsDir() && checkZoneName(name) == nil {
			names = append(names, name)
		}
		return nil
	})
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return names
}

// TestSurveyFindsEveryChange compares the survey with the zone's own table in
// every zone there is. A table's step is taken only where it is sane, which is
// why the engine does not use it.
func TestSurveyFindsEveryChange(t *testing.T) {
	t.Parallel()
	loaded := 0
	for _, name := range ZoneNames(t) {
		z, err := loadZone(name)
		if err != nil {
			continue
		}
		loaded++
		var want, got []shift
		for at := time.Unix(0, 0).In(z.location); at.Year() < 2028; {
			_, end := at.ZoneBounds()
			if end.IsZero() {
				break
			}
			if !end.After(at) {
				t.Fatalf("%s: the zone's table does not go on at %v", name, at)
			}
			if before, after := z.offset(end.Unix()-1), z.offset(end.Unix()); before != after && end.UTC().Year() < 2028 {
				want = append(want, shift{end.Unix(), after})
			}
			at = end
		}
		for year := firstYear; year < 2028; year++ {
			start := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
			y := z.year(start)
			for _, s := range y.shifts {
				if s.at >= max(start, 1) && s.at < y.end {
					got = append(got, s)
				}
			}
		}
		if !slices.Equal(want, got) {
			t.Errorf("%s: changes %v, surveyed %v", name, want, got)
		}
	}
	if loaded < 7 {
		t.Errorf("only %d zones could be loaded", loaded)
	}
}

func TestPeriodsJoin(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"UTC", "America/New_York", "Pacific/Apia", "Africa/Casablanca", "Australia/Lord_Howe"} {
		z, err := loadZone(name)
		if err != nil {
			t.Fatal(err)
		}
		for at := int64(0); at < lastSecond; {
			p := z.at(at)
			if at < p.from || at >= p.to || p.offset != z.offset(at) || p.to < farFuture && p.after != z.offset(p.to) {
				t.Fatalf("%s at %v: %+v", name, time.Unix(at, 0).UTC(), p)
			}
			if last := z.at(min(p.to, lastSecond) - 1); last.offset != p.offset {
				t.Fatalf("%s: offset %d at the end of %+v", name, last.offset, p)
			}
			at = p.to
		}
	}
}

func TestLoadZone(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		want string // the refusal, or "" for none
	}{
		{"", ""},
		{"UTC", ""},
		{"Etc/GMT+5", ""},
		{"America/Argentina/Buenos_Aires", ""},
		{"Local", "differs from machine"},
		{"local", "not a known zone"},
		{"localtime", "not a known zone"},
		{"posixrules", "not a known zone"},
		{"right/Europe/London", "not a known zone"},
		{"posix/Europe/London", "not a known zone"},
		{"../etc/passwd", "not a known zone"},
		{"/etc/localtime", "not a known zone"},
		{"Europe//London", "not a known zone"},
		{"Europe/./London", "not a known zone"},
		{"Europe/Londinium", "not a known zone"},
		{"Europe", "not a known zone"},
		{"+01:00", "not a known zone"},
		{strings.Repeat("a", 65), "not a known zone"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			z, err := loadZone(test.name)
			switch {
			case test.want == "" && err != nil:
				t.Errorf("loadZone = %v", err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("loadZone = %v, %v, want %q", z, err, test.want)
			}
		})
	}
	first, _ := loadZone("Europe/Paris")
	if second, _ := loadZone("Europe/Paris"); first != second {
		t.Error("a zone is loaded twice")
	}
}

func TestHorizon(t *testing.T) {
	t.Parallel()
	if want := time.Date(cron.LastYear+1, 1, 1, 0, 0, 0, 0, time.UTC).Unix() - 1; want != lastSecond {
		t.Errorf("lastSecond = %d, want %d", lastSecond, want)
	}
}

func TestSecondLock(t *testing.T) {
	t.Parallel()
	if err := secondLock("0 0 0 * * 1#2"); err != nil {
		t.Error(err)
	}
	var wrong *cron.Error
	if err := secondLock("0 0 0 * *  MONDAY"); !errors.As(err, &wrong) || wrong.Problems[0].Field != "expression" {
		t.Errorf("secondLock = %v", err)
	}
}

func TestANearlyRightZoneIsNamed(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"Europe/Berln": "Europe/Berlin", "europe/berlin": "Europe/Berlin", "Berlin": "Europe/Berlin", "New York": "America/New_York", "America/New York": "America/New_York",
		"Asia/Shangai": "Asia/Shanghai", "Tokio": "Asia/Tokyo", "utc": "UTC", "Utc": "UTC", "gmt": "GMT",
	} {
		if _, err := Location(given); err == nil || err.Error() != "is not a known zone; did you mean "+want+"?" {
			t.Errorf("%s: %v, want a hint at %s", given, err, want)
		}
	}
	for _, given := range []string{"Mars/Olympus", "../../etc/passwd", strings.Repeat("x", 4000), "x"} {
		if _, err := Location(given); err == nil || !strings.Contains(err.Error(), "such as Europe/London") {
			t.Errorf("%.20s: %v", given, err)
		}
	}
}

// A caller that follows a hint names a zone.
func TestZonesOfHintsExist(t *testing.T) {
	t.Parallel()
	names, err := os.ReadFile("zones.txt")
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.FieldsSeq(string(names)) {
		if _, err := Location(name); err != nil {
			t.Errorf("%s %v", name, err)
		}
	}
}
