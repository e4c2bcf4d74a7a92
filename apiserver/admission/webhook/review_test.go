package webhook

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"testing"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/internal/must"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	upstream "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/generic"
	webhookrequest "k8s.io/apiserver/pkg/admission/plugin/webhook/request"
)

// TestReview: what is written by hand is what encoding/json makes of upstream's review, to the last
// digit of its numbers, whatever strings there are.
func TestReview(t *testing.T) {
	odd := "<&>\"\\/\u2028\u2029\x00\x1f\x7f\xff\xc3(\xed\xa0\x80ü\U0001f600\ufffd"
	object := tree.Object{"apiVersion": "v1", "kind": "ConfigMap", odd: odd, "metadata": map[string]any{"name": odd, "labels": map[string]any{odd: odd, "": ""}}, "numbers": []any{
		int64(math.MaxInt64), int64(math.MinInt64), int64(1<<53 + 1), 1e20, 1e21, 1e-6, 1e-7, 0.1, 3.0, math.MaxFloat64, math.SmallestNonzeroFloat64, math.Copysign(0, -1),
	}, "none": nil, "no list": []any(nil), "no map": map[string]any(nil), "empty": []any{map[string]any{}, []any{}, ""}}
	for _, version := range []string{"v1", "v1beta1"} {
		for _, operation := range []upstream.Operation{upstream.Create, upstream.Update, upstream.Delete, upstream.Connect} {
			a := &admission.Attributes{
				Operation: operation, Namespace: odd, Name: odd, Subresource: odd, DryRun: operation == upstream.Update, FieldManager: odd, FieldValidation: odd,
				User: &auth.User{Name: odd, UID: odd, Groups: []string{odd, ""}, Extra: map[string][]string{odd: {odd, ""}, "none": nil, "empty": {}}}, DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: new(int64)},
			}
			a.Kind.Group, a.Kind.Kind, a.Resource.Group, a.Resource.Resource = odd, odd, odd, odd
			v := &upstream.VersionedAttributes{Attributes: a}
			if operation != upstream.Delete {
				v.VersionedObject = &unstructured.Unstructured{Object: object}
			}
			if operation == upstream.Delete || operation == upstream.Update {
				v.VersionedOldObject = &unstructured.Unstructured{Object: object}
			}
			i := &generic.WebhookInvocation{Kind: schema.GroupVersionKind{Group: odd, Version: "v2", Kind: odd}, Resource: schema.GroupVersionResource{Group: odd, Version: "v2", Resource: odd}, Subresource: odd}
			const uid = "01234567-89ab-cdef-0123-456789abcdef"
			var all reviews
			r, err := all.of(schema.GroupVersion{Group: v1.Group, Version: version}, v, i)
			must.OK(t, err)
			var theirs any
			if request := webhookrequest.CreateV1AdmissionReview(uid, v, i); version == "v1" {
				request.APIVersion, request.Kind, theirs = v1.String(), "AdmissionReview", request
			} else {
				request := webhookrequest.CreateV1beta1AdmissionReview(uid, v, i)
				request.APIVersion, request.Kind, theirs = v1beta1.String(), "AdmissionReview", request
			}
			want, err := json.Marshal(theirs)
			must.OK(t, err)
			if got := r.with(uid); !reflect.DeepEqual(exact(t, got), exact(t, want)) {
				t.Errorf("%s of %s:\n%s\nwant\n%s", operation, version, got, want)
			}
		}
	}
}

// exact is JSON with its numbers as they are written.
func exact(t *testing.T, raw []byte) (out any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&out); err != nil {
		t.Fatalf("%v in %q", err, raw)
	}
	return out
}
