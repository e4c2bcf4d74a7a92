package schema

import (
	"errors"
	"testing"

	"github.com/quorate/quorate/internal/must"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"
)

// TestMismatchWords: a value of another type than its field is refused as upstream's types refuse it, and
// what a strategic merge patch has made as apimachinery's converter does.
func TestMismatchWords(t *testing.T) {
	for _, c := range []struct {
		model, object string
		convert       bool // the converter has an error too: it takes some values that JSON does not
	}{
		{"Deployment", `{"spec":1}`, true},
		{"Deployment", `{"spec":[]}`, true},
		{"Deployment", `{"metadata":"x"}`, true},
		{"Deployment", `{"metadata":{"labels":[]}}`, true},
		{"Deployment", `{"metadata":{"labels":"x"}}`, true},
		{"Deployment", `{"metadata":{"labels":{"a":1}}}`, true},
		{"Deployment", `{"metadata":{"labels":{"a":1.5}}}`, true},
		{"Deployment", `{"metadata":{"labels":{"a":true}}}`, true},
		{"Deployment", `{"metadata":{"labels":{"a":{}}}}`, true},
		{"Deployment", `{"metadata":{"generation":"x"}}`, true},
		{"Deployment", `{"metadata":{"generation":1.5}}`, true},
		{"Deployment", `{"metadata":{"finalizers":[{}]}}`, true},
		{"Deployment", `{"spec":{"paused":"x"}}`, true},
		{"Deployment", `{"spec":{"paused":1}}`, true},
		{"Deployment", `{"spec":{"replicas":"x"}}`, true},
		{"Deployment", `{"spec":{"replicas":true}}`, true},
		{"Deployment", `{"spec":{"replicas":[]}}`, true},
		{"Deployment", `{"spec":{"replicas":{}}}`, true},
		{"Deployment", `{"spec":{"replicas":1.5}}`, true},
		{"Deployment", `{"spec":{"replicas":3000000000}}`, false},
		{"Deployment", `{"spec":{"selector":"x"}}`, true},
		{"Deployment", `{"spec":{"template":{"spec":{"containers":{}}}}}`, true},
		{"Deployment", `{"spec":{"template":{"spec":{"containers":"x"}}}}`, true},
		{"Deployment", `{"spec":{"template":{"spec":{"containers":[{"name":"a"},{"name":1}]}}}}`, true},
		{"Deployment", `{"spec":{"template":{"spec":{"containers":[{"ports":[1]}]}}}}`, true},
		{"Deployment", `{"spec":{"template":{"spec":{"containers":[{"args":[null,1]}]}}}}`, true},
		{"Deployment", `{"spec":{"template":{"metadata":{"labels":{"a":"","b":1}}}}}`, true},
		{"Deployment", `{"spec":{"strategy":{"rollingUpdate":{"maxSurge":3000000000}}}}`, true},
		{"Deployment", `{"spec":{"strategy":{"rollingUpdate":{"maxSurge":1.5}}}}`, true},
		{"Deployment", `{"spec":{"strategy":{"rollingUpdate":{"maxSurge":true}}}}`, true},
		{"Secret", `{"data":{"a":1}}`, true},
		{"Secret", `{"data":1}`, true},
		{"Secret", `{"stringData":{"a":1}}`, true},
		{"Secret", `{"immutable":1}`, true},
	} {
		var into any
		switch c.model {
		case "Deployment":
			into = &appsv1.Deployment{}
			c.model = "io.k8s.api.apps.v1.Deployment"
		case "Secret":
			into = &corev1.Secret{}
			c.model = "io.k8s.api.core.v1.Secret"
		}
		m, err := Lookup(c.model)
		must.OK(t, err)
		var obj, same map[string]any
		for _, o := range []*map[string]any{&obj, &same} {
			must.OK(t, kjson.UnmarshalCaseSensitivePreserveInts([]byte(c.object), o))
		}
		want := kjson.UnmarshalCaseSensitivePreserveInts([]byte(c.object), into)
		_, got := m.Fit(obj)
		if want == nil || got == nil || got.Error() != want.Error() {
			t.Errorf("%s:\n\t%v, upstream\n\t%v", c.object, got, want)
			continue
		}
		want = runtime.DefaultUnstructuredConverter.FromUnstructured(same, into)
		var mismatch *MismatchError
		if !errors.As(got, &mismatch) || c.convert && (want == nil || mismatch.Unstructured() != want.Error()) {
			t.Errorf("%s, converted:\n\t%v, upstream\n\t%v", c.object, mismatch.Unstructured(), want)
		}
	}
}
