package kinds

import (
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
)

// FuzzEnablement: whatever --runtime-config says is refused or leaves a registry whose
// kinds can be looked up.
func FuzzEnablement(f *testing.F) {
	for _, s := range []string{"api/all=false,api/v1=true", "apps/v1=0", "api/beta=true", "batch/v1/jobs=false", "=,a==b,/", "api/ga=maybe", "storage.k8s.io/v1beta1/csistoragecapacities"} {
		f.Add(s)
	}
	all, err := Available()
	must.OK(f, err)
	f.Fuzz(func(t *testing.T, s string) {
		left, err := ParseEnablement(strings.Split(s, ",")).Apply(all, nil)
		if err != nil {
			return
		}
		for _, r := range left.All() {
			if all.LookupKind(r.GVK()) == nil {
				t.Fatalf("%q makes %s", s, r.GVK())
			}
		}
	})
}
