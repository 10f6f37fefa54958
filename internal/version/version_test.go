package version

import (
	"runtime/debug"
	"testing"
)

func TestRecorded(t *testing.T) {
	t.Parallel()
	revision := debug.BuildSetting{Key: "vcs.revision", Value: "0123456789abcdef0123"}
	for _, test := range []struct {
		name string
		info debug.BuildInfo
		want string
	}{
		{"a module that was fetched", debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}, "v1.2.3"},
		{"a checkout", debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: []debug.BuildSetting{revision}}, "0123456789ab"},
		{"a changed checkout", debug.BuildInfo{Settings: []debug.BuildSetting{revision, {Key: "vcs.modified", Value: "true"}}}, "0123456789ab-dirty"},
		{"a short revision", debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "0123"}}}, "0123"},
		{"nothing recorded", debug.BuildInfo{}, "devel"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := recorded(&test.info); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
