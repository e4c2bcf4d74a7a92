package kinds

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestEnablement(t *testing.T) {
	all, err := Available()
	must.OK(t, err)
	for _, c := range []struct{ config, has, lacks, err string }{
		{"", "/v1/pods apps/v1/deployments", "networking.k8s.io/v1beta1/ipaddresses", ""},
		{"api/beta=true", "networking.k8s.io/v1beta1/ipaddresses networking.k8s.io/v1/ipaddresses", "", ""},
		{"api/all", "networking.k8s.io/v1beta1/ipaddresses /v1/pods", "", ""},
		{"api/all=true,api/beta=false", "/v1/pods", "networking.k8s.io/v1beta1/ipaddresses", ""},
		{"networking.k8s.io/v1beta1=true", "networking.k8s.io/v1beta1/servicecidrs", "storage.k8s.io/v1beta1/volumeattributesclasses", ""},
		{"networking.k8s.io/v1beta1", "networking.k8s.io/v1beta1/servicecidrs", "", ""},
		{"networking.k8s.io/v1beta1/ipaddresses=1", "networking.k8s.io/v1beta1/ipaddresses", "networking.k8s.io/v1beta1/servicecidrs", ""},
		{"api/beta=true,networking.k8s.io/v1beta1=false,networking.k8s.io/v1beta1/ipaddresses=true", "networking.k8s.io/v1beta1/ipaddresses storage.k8s.io/v1beta1/volumeattributesclasses", "networking.k8s.io/v1beta1/servicecidrs", ""},
		{"apps/v1/deployments=false", "apps/v1/replicasets", "apps/v1/deployments", ""},
		{"batch/v1=false", "apps/v1/deployments", "batch/v1/jobs batch/v1/cronjobs", ""},
		{"api/all=false,v1=true", "/v1/pods", "apps/v1/deployments", ""},
		{"api/ga=false,/v1=true", "/v1/pods", "apps/v1/deployments", ""},
		{"api/all=false", "", "", "api/all=false alone"},
		{"v1=false", "", "", "namespaces cannot be switched off"},
		{"api/beta=maybe", "", "", `invalid value of api/beta: "maybe"`},
		{"extensions/v1beta1=true", "", "", "unknown api groups extensions/v1beta1"},
		{"apps/v1beta1=true", "", "", "group version apps/v1beta1 that has not been registered"},
		{"batch/v2alpha1", "", "", "group version batch/v2alpha1 that has not been registered"},
		{"admissionregistration.k8s.io/v1beta1=false,apiextensions.k8s.io/v1beta1", "", "", "that has not been registered"},
		{"apps/v1/Deployments=true", "", "", "there is no such resource in apps/v1"},
		{"a/b/c/d=true", "", "", "invalid key a/b/c/d"},
	} {
		got, err := ParseEnablement(strings.Split(c.config, ",")).Apply(all, nil)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q: %v, want %s", c.config, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", c.config, err)
			continue
		}
		for _, x := range strings.Fields(c.has) {
			if got.Lookup(parsed(x)) == nil {
				t.Errorf("%q: %s is off", c.config, x)
			}
		}
		for _, x := range strings.Fields(c.lacks) {
			if all.Lookup(parsed(x)) == nil {
				t.Fatalf("there is no %s", x)
			}
			if got.Lookup(parsed(x)) != nil {
				t.Errorf("%q: %s is on", c.config, x)
			}
		}
	}
}

func parsed(s string) schema.GroupVersionResource {
	parts := strings.Split(s, "/")
	return schema.GroupVersionResource{Group: parts[0], Version: parts[1], Resource: parts[2]}
}

func TestDeprecations(t *testing.T) {
	all, err := Available()
	must.OK(t, err)
	want := map[string]Deprecation{
		"/v1/endpoints":                                  {"v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice", ""},
		"networking.k8s.io/v1beta1/ipaddresses":          {"networking.k8s.io/v1beta1 IPAddress is deprecated in v1.34+, unavailable in v1.37+", "1.37"},
		"networking.k8s.io/v1beta1/servicecidrs":         {"networking.k8s.io/v1beta1 ServiceCIDR is deprecated in v1.34+, unavailable in v1.37+", "1.37"},
		"storage.k8s.io/v1beta1/volumeattributesclasses": {"storage.k8s.io/v1beta1 VolumeAttributesClass is deprecated in v1.34+, unavailable in v1.37+; use storage.k8s.io/v1 VolumeAttributesClass", "1.37"},
		"coordination.k8s.io/v1beta1/leasecandidates":    {"coordination.k8s.io/v1beta1 LeaseCandidate is deprecated in v1.36+, unavailable in v1.39+", "1.39"},
	}
	for _, r := range all.All() {
		key := r.Group + "/" + r.Version + "/" + r.Plural
		w, ok := want[key]
		switch {
		case ok != (r.Deprecation != nil):
			t.Errorf("%s: deprecated: %v", key, r.Deprecation)
		case ok && *r.Deprecation != w:
			t.Errorf("%s: %+v", key, *r.Deprecation)
		}
		delete(want, key)
	}
	if len(want) > 0 {
		t.Errorf("not served: %v", want)
	}
}

func TestMinor(t *testing.T) {
	mod, err := os.ReadFile(filepath.Join("..", "..", "..", "go.mod"))
	must.OK(t, err)
	m := regexp.MustCompile(`k8s\.io/api v0\.(\d+)\.`).FindSubmatch(mod)
	if m == nil || string(m[1]) != strconv.Itoa(Minor) {
		t.Errorf("go.mod has k8s.io/api %q, Minor is %d", m, Minor)
	}
}

// TestGates: what is behind a feature gate is served if it is switched on and the gate is open.
func TestGates(t *testing.T) {
	all, err := Available()
	must.OK(t, err)
	bundles := parsed("certificates.k8s.io/v1beta1/clustertrustbundles")
	for _, c := range []struct {
		config string
		open   func(string) bool
		served bool
	}{
		{"", func(string) bool { return true }, false},
		{"api/beta=true", nil, false},
		{"certificates.k8s.io/v1beta1=true", func(string) bool { return false }, false},
		{"certificates.k8s.io/v1beta1/clustertrustbundles=true", func(gate string) bool { return gate == "ClusterTrustBundle" }, true},
	} {
		got, err := ParseEnablement([]string{c.config}).Apply(all, c.open)
		must.OK(t, err)
		if served := got.Lookup(bundles) != nil; served != c.served {
			t.Errorf("%q: served: %v, want %v", c.config, served, c.served)
		}
	}
}
