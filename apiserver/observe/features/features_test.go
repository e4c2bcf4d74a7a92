package features

import (
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"k8s.io/component-base/featuregate"
)

func TestRules(t *testing.T) {
	specs := map[featuregate.Feature]featuregate.FeatureSpec{
		"Young": {Default: false, PreRelease: featuregate.Alpha},
		"Grown": beta,
		"Done":  locked,
	}
	for _, c := range []struct{ set, on, err string }{
		{"", "Done Grown", ""},
		{"Young=true", "Done Grown Young", ""},
		{"Grown=false", "Done", ""},
		{"AllBeta=false", "Done", ""},
		{"AllAlpha=true", "AllAlpha Done Grown Young", ""},
		{"AllAlpha=true,Young=false", "AllAlpha Done Grown", ""},
		{"Done=true", "Done Grown", ""},
		{"Done=false", "", "cannot set feature gate Done to false, feature is locked to true"},
		{"Other=true", "", "unrecognized feature gate: Other"},
		{"Young=yes", "", "invalid value"},
		{"Young", "", "missing bool value"},
	} {
		g, err := with(specs, strings.Split(c.set, ","))
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q: %v, want %s", c.set, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", c.set, err)
			continue
		}
		var on []string
		for _, s := range g.All() {
			if s.Enabled {
				on = append(on, s.Name)
			}
		}
		if got := strings.Join(on, " "); got != c.on {
			t.Errorf("%q: %s are on, want %s", c.set, got, c.on)
		}
	}
}

func TestKnown(t *testing.T) {
	g, err := New(nil)
	must.OK(t, err)
	for _, s := range g.All() {
		if want := s.Stage != "ALPHA" && s.Name != "AllBeta" && s.Name != "AllAlpha" && s.Name != string(ClusterTrustBundle); s.Enabled != want {
			t.Errorf("%+v", s)
		}
	}
	if _, err := New([]string{"RetryGenerateName=false"}); err == nil {
		t.Error("a locked gate was changed")
	}
}
