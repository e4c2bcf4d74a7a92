package webhook

import (
	"encoding/base64"
	"reflect"
	"testing"

	"github.com/quorate/quorate/internal/must"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	webhookrequest "k8s.io/apiserver/pkg/admission/plugin/webhook/request"
)

// FuzzAllowed: what is read by hand is what upstream's codec reads.
func FuzzAllowed(f *testing.F) {
	scheme := runtime.NewScheme()
	must.OK(f, admissionv1.AddToScheme(scheme))
	codec := serializer.NewCodecFactory(scheme).LegacyCodec(v1)
	for _, members := range []string{
		"", `,"status":{"metadata":{},"code":200,"message":"m","reason":"r","status":"Success"}`,
		`,"patchType":"JSONPatch","patch":"` + base64.StdEncoding.EncodeToString([]byte(`[{"op":"remove","path":"/a"}]`)) + `"`,
		`,"allowed":false`, `,"uid":"\u0075"`, `,"status":{"code":01}`, `,"patch":"W10"`,
	} {
		f.Add([]byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"u","allowed":true`+members+"}}"), true)
	}
	f.Fuzz(func(t *testing.T, raw []byte, mutating bool) {
		got, ok := allowed(raw, v1, "u", mutating)
		if !ok {
			return
		}
		review := &admissionv1.AdmissionReview{}
		if _, _, err := codec.Decode(raw, nil, review); err != nil {
			t.Fatalf("upstream refuses it: %v", err)
		}
		want, err := webhookrequest.VerifyAdmissionResponse("u", mutating, review)
		if err != nil {
			t.Fatalf("upstream refuses it: %v", err)
		}
		if want.Result = nil; !reflect.DeepEqual(got, want) { // it counts for those that are refused
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}
