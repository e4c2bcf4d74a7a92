package cli

import (
	"runtime/debug"
	"testing"
)

func TestBuild(t *testing.T) {
	checkout := []debug.BuildSetting{{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: "0123abcd"}, {Key: "vcs.modified", Value: "true"}}
	for _, c := range []struct {
		what            string
		version, commit string // from the linker
		info            *debug.BuildInfo
		want            Build
	}{
		{"make build", "v1.2.3-4-gabc", "abcdef", &debug.BuildInfo{Main: debug.Module{Version: "v1.2.4-0.2026+dirty"}, Settings: checkout}, Build{"v1.2.3-4-gabc", "abcdef"}},
		{"bench/run.sh", "", "v1.2.3-4-gabc", &debug.BuildInfo{Main: debug.Module{Version: "v1.2.4-0.2026+dirty"}, Settings: checkout}, Build{"v1.2.4-0.2026+dirty", "v1.2.3-4-gabc"}},
		{"go install", "", "", &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}, Build{"v1.2.3", ""}},
		{"go build in a checkout", "", "", &debug.BuildInfo{Main: debug.Module{Version: "v1.2.4-0.2026+dirty"}, Settings: checkout}, Build{"v1.2.4-0.2026+dirty", "0123abcd"}},
		{"go build -buildvcs=false", "", "", &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, Build{"unknown", ""}},
		{"another build system", "", "", nil, Build{"unknown", ""}},
	} {
		if got := buildOf(c.version, c.commit, c.info); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.what, got, c.want)
		}
	}
}
