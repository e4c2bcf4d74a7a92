package validation

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/schema"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/internal/must"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/kubernetes/pkg/apis/core"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// notStored are the built-in kinds that nobody validates: reviews and bindings are answered. The
// last has a validation of its own library (package crd).
var notStored = []string{
	"bindings", "selfsubjectreviews.authentication.k8s.io", "tokenreviews.authentication.k8s.io",
	"localsubjectaccessreviews.authorization.k8s.io", "selfsubjectaccessreviews.authorization.k8s.io",
	"selfsubjectrulesreviews.authorization.k8s.io", "subjectaccessreviews.authorization.k8s.io",
	"customresourcedefinitions.apiextensions.k8s.io",
}

// TestEveryKindIsValidated: every kind that is stored has rules, and rules of parts are those of
// subresources that it has.
func TestEveryKindIsValidated(t *testing.T) {
	registry, err := kinds.Available()
	must.OK(t, err)
	left := Kinds()
	for _, res := range registry.All() {
		name := res.CodeName()
		if (Of(name) == nil) != slices.Contains(notStored, name) {
			t.Errorf("%s: has rules: %t. Those of a stored kind are an entry in the file of its group, and all.go has all groups; a kind that is not stored is in notStored", name, Of(name) != nil)
		}
		left = slices.DeleteFunc(left, func(s string) bool { return s == name })
		if Of(name) == nil {
			continue
		}
		for _, part := range all[name].(interface{ subresources() []string }).subresources() {
			if res.Subresource(part) == nil {
				t.Errorf("%s has rules of %s, which it has not", name, part)
			}
		}
	}
	if len(left) > 0 {
		t.Errorf("there are rules of %s, which are no kinds", left)
	}
}

// samples are one valid object of each kind, with its defaults.
func samples(t testing.TB) map[string]sample {
	t.Helper()
	registry, err := kinds.Available()
	must.OK(t, err)
	raw, err := os.ReadFile("../../testdata/kinds/samples.yaml")
	must.OK(t, err)
	raw = append(raw, moreSamples...)
	out := map[string]sample{}
	for docs := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(raw))); ; {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			for _, name := range Kinds() {
				if out[name].res == nil {
					t.Fatalf("%s has no sample: it goes into apiserver/testdata/kinds/samples.yaml, or into moreSamples if the kind is served by --runtime-config alone", name)
				}
			}
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		asJSON, err := yaml.YAMLToJSON(doc)
		must.OK(t, err)
		var obj tree.Object
		must.OK(t, kjson.UnmarshalCaseSensitivePreserveInts(asJSON, &obj))
		for _, res := range registry.All() {
			if res.GVK().Kind != obj["kind"] || res.GroupVersion().String() != obj["apiVersion"] || Of(res.CodeName()) == nil || res.Conversion != "" {
				continue
			}
			model, err := schema.Lookup(res.Model)
			must.OK(t, err)
			if _, err := model.Fit(obj); err != nil {
				t.Fatal(err)
			}
			must.OK(t, model.Default(obj))
			meta := tree.As(obj["metadata"])
			if res.Namespaced {
				meta["namespace"] = "default"
			}
			tree.PrepareCreate(meta, res.HasGeneration, time.Unix(1_800_000_000, 0))
			out[res.CodeName()] = sample{res, obj}
		}
	}
}

// moreSamples are of kinds that are not served by default.
const moreSamples = `
---
apiVersion: coordination.k8s.io/v1beta1
kind: LeaseCandidate
metadata: {name: sample}
spec: {leaseName: l, strategy: OldestEmulationVersion, binaryVersion: 1.36.0, emulationVersion: 1.36.0}
---
apiVersion: certificates.k8s.io/v1beta1
kind: ClusterTrustBundle
metadata: {name: sample}
spec:
  trustBundle: |
    -----BEGIN CERTIFICATE-----
    MIIBdjCCARugAwIBAgIUEabo6FwUSA7VQlpwxWOsepGwuqswCgYIKoZIzj0EAwIw
    DzENMAsGA1UEAwwEcm9vdDAgFw0yNjExMjIyMjIwMThaGA8yMTI2MTAyOTIyMjAx
    OFowDzENMAsGA1UEAwwEcm9vdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABBaX
    j58Lzxt1WifXpsZJBqTL2qa/gaoB5WNc5+7dC4LUvdraknyriXLazHlxCnjr3yKn
    DU1zIIo+zSSszh062BSjUzBRMB0GA1UdDgQWBBQDPSb+RKAHE35Rdi+V511y7dmq
    UjAfBgNVHSMEGDAWgBQDPSb+RKAHE35Rdi+V511y7dmqUjAPBgNVHRMBAf8EBTAD
    AQH/MAoGCCqGSM49BAMCA0kAMEYCIQCpCmixNth34Q36AxLvPvG4sOLfpCGVDqYl
    AZ9UmP23zwIhAO504utkHrf83RgH7L95inlKCFUni63RJjnrowd7pt/z
    -----END CERTIFICATE-----
`

type sample struct {
	res *kinds.Resource
	obj tree.Object
}

// TestSamples: valid objects are valid, as creates, as updates of themselves and by every
// subresource; and each of the ways is validated: metadata that is wrong is refused.
func TestSamples(t *testing.T) {
	of := samples(t)
	for _, name := range Kinds() {
		t.Run(name, func(t *testing.T) {
			s := of[name]
			rules, namespaced := Of(name), s.res.Namespaced
			created := runtime.DeepCopyJSON(s.obj)
			if s.res.Subresource("status") != nil && !s.res.StatusOnCreate {
				delete(created, "status")
			}
			prepare(name, created)
			wants(t, "create", rules.Create(created, namespaced, nil), "")
			unnamed := runtime.DeepCopyJSON(created)
			delete(tree.As(unnamed["metadata"]), "name")
			wants(t, "create without a name", rules.Create(unnamed, namespaced, nil), "metadata.name: Required")
			stored := runtime.DeepCopyJSON(created)
			tree.As(stored["metadata"])["resourceVersion"] = "7"
			for _, part := range append([]string{""}, all[name].(interface{ subresources() []string }).subresources()...) {
				wants(t, "update "+part, rules.Update(part, stored, stored, namespaced, nil), "")
				other := runtime.DeepCopyJSON(stored)
				tree.As(other["metadata"])["uid"] = "another"
				wants(t, "update of the uid "+part, rules.Update(part, other, stored, namespaced, nil), "metadata.uid: Invalid")
			}
		})
	}
}

// prepare is what strategies add before they validate, where that matters.
func prepare(name string, obj tree.Object) {
	spec := tree.As(obj["spec"])
	switch name {
	case "namespaces":
		obj["status"] = tree.Object{"phase": "Active"}
	case "services":
		spec["clusterIPs"], spec["ipFamilies"] = []any{spec["clusterIP"]}, []any{"IPv4"}
		spec["ipFamilyPolicy"] = "SingleStack"
	case "jobs.batch":
		labels := tree.Object{"job-name": "sample", "batch.kubernetes.io/job-name": "sample", "controller-uid": obj["metadata"].(tree.Object)["uid"], "batch.kubernetes.io/controller-uid": obj["metadata"].(tree.Object)["uid"]}
		template := tree.As(spec["template"])
		meta := tree.Clone(template["metadata"])
		for k, v := range tree.As(meta["labels"]) {
			labels[k] = v
		}
		meta["labels"], template["metadata"] = labels, meta
		spec["selector"] = tree.Object{"matchLabels": tree.Object{"batch.kubernetes.io/controller-uid": labels["controller-uid"]}}
	}
}

// wants checks that errors have a text among them; "" is no errors.
func wants(t *testing.T, what string, errs field.ErrorList, want string) {
	t.Helper()
	switch {
	case want == "" && len(errs) > 0:
		t.Errorf("%s: %v", what, errs.ToAggregate())
	case want != "" && (len(errs) == 0 || !strings.Contains(errs.ToAggregate().Error(), want)):
		t.Errorf("%s: %v, want %s", what, errs.ToAggregate(), want)
	}
}

// TestPanicsAreContained: a panic of upstream's functions refuses the object, and nothing else.
func TestPanicsAreContained(t *testing.T) {
	var nobody *core.ConfigMap
	wants(t, "nil", ruleOf(func() { _ = nobody.Data }).Create(tree.Object{"metadata": tree.Object{"name": "a"}}, true, nil), "nil pointer dereference")
	broken := ruleOf(func() { panic("as they do") })
	errs := broken.Create(tree.Object{"metadata": tree.Object{"name": "a"}}, true, nil)
	wants(t, "create", errs, "ended with a panic: as they do")
	// The log is told where.
	told, ok := errs[0].BadValue.(objects.ValidationPanic)
	if !ok {
		t.Fatalf("the error carries %v", errs[0].BadValue)
	}
	if !strings.Contains(told.Where(), "TestPanicsAreContained") || !strings.Contains(told.Stack(), "validation_test.go:") {
		t.Errorf("at %s:\n%s", told.Where(), told.Stack())
	}
	old := tree.Object{"metadata": tree.Object{"name": "a", "resourceVersion": "1"}}
	wants(t, "update", broken.Update("", old, old, true, nil), "ended with a panic: as they do")
}

// ruleOf are the rules of ConfigMaps, with what they do besides.
func ruleOf(do func()) Kind {
	r := coreKinds["configmaps"].(rules[corev1.ConfigMap, core.ConfigMap])
	r.plain = nil
	r.create = func(*core.ConfigMap) field.ErrorList { do(); return nil }
	r.update = func(_, _ *core.ConfigMap) field.ErrorList { do(); return nil }
	return r
}
