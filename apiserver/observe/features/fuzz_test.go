package features

import "testing"

// FuzzGates: whatever is set, the locked gates stay as they are, or it is refused.
func FuzzGates(f *testing.F) {
	for _, s := range []string{"", "WatchList=false", "AllBeta=false", "RetryGenerateName=false", "A=b=c", "=", "WatchList = true", "AllAlpha=true,WatchList=false"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		g, err := New([]string{s})
		if err != nil {
			return
		}
		for name, spec := range known {
			if spec.LockToDefault && g.Enabled(name) != spec.Default {
				t.Fatalf("%q changes %s", s, name)
			}
		}
	})
}
