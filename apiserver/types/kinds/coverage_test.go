package kinds

import (
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// notOfAPI are groups in client-go's scheme whose types are no part of the API
// that a server of built-in resources has.
var notOfAPI = map[string]string{
	"imagepolicy.k8s.io":        "a webhook's wire format",
	"admission.k8s.io":          "a webhook's wire format",
	"internal.apiserver.k8s.io": "alpha only",
}

// Every kind of the GA groups is a resource, the body of a subresource, or
// left out for a reason that the data gives.
func TestEveryKindIsServedOrLeftOut(t *testing.T) {
	b, err := dataFiles.ReadFile("data/" + leftOutFile)
	must.OK(t, err)
	leftOut := map[string]string{}
	must.OK(t, yaml.UnmarshalStrict(b, &leftOut))
	served := map[schema.GroupVersionKind]bool{}
	for _, r := range registry(t).All() {
		served[r.GVK()] = true
		for _, s := range r.Subresources {
			if s.Kind != "" {
				served[schema.GroupVersionKind{Group: s.Group, Version: s.Version, Kind: s.Kind}] = true
			}
		}
	}
	used := map[string]bool{}
	for gvk, typ := range scheme.Scheme.AllKnownTypes() {
		ga := gvk.Version == "v1" || gvk.Version == "v2"
		if !ga || notOfAPI[gvk.Group] != "" || !strings.HasPrefix(typ.PkgPath(), "k8s.io/api/") {
			continue
		}
		if strings.HasSuffix(gvk.Kind, "List") || served[gvk] {
			continue
		}
		key := gvk.GroupVersion().String() + ", " + gvk.Kind
		if leftOut[key] == "" {
			t.Errorf("%s is neither served nor left out", key)
		}
		used[key] = true
	}
	for key := range leftOut {
		if !used[key] {
			t.Errorf("%s is listed as left out, but is served or does not exist", key)
		}
	}
}

func TestStrictLoader(t *testing.T) {
	for name, text := range map[string]string{
		"unknown key":         "version: v1\nresources: [{kind: A, plural: as, colour: red}]",
		"unknown column key":  "version: v1\nresources: [{kind: A, plural: as, columns: [{name: X, path: .a}]}]",
		"column without cell": "version: v1\nresources: [{kind: A, plural: as, columns: [{name: X}]}]",
		"no plural":           "version: v1\nresources: [{kind: A}]",
		"name rule":           "version: v1\nresources: [{kind: A, plural: as, nameRule: any}]",
		"moves and code":      "version: v2\nresources: [{kind: A, plural: as, storageVersion: v1, conversion: autoscaling/v1, storageModel: A, moves: [{from: a, to: b}]}]",
		"scale without paths": "version: v1\nresources: [{kind: A, plural: as, subresources: [{name: scale}]}]",
	} {
		if _, err := parse([]byte(text)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
