package request

import (
	"testing"

	"github.com/quorate/quorate/apiserver/wire/codec"
	"github.com/quorate/quorate/internal/must"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
)

// FuzzDeleteOptions: of any body there are valid options or a refusal with a Status, and
// protobuf says the same as upstream's type reads out of it.
func FuzzDeleteOptions(f *testing.F) {
	kinds := []string{codec.JSON, codec.YAML, codec.Protobuf}
	for _, s := range []string{
		`{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0,"propagationPolicy":"Foreground"}`, `{"preconditions":{"uid":"a","resourceVersion":"1"}}`,
		`{"dryRun":["All"],"orphanDependents":true}`, `{"kind":"Pod"}`, `gracePeriodSeconds: 1e3`, `[]`, `null`, "{preconditions: {uid: &a [*a]}}",
		"k8s\x00\n\x13\n\x02v1\x12\rDeleteOptions\x12\x02\x08\x05\x1a\x00\"\x00",
	} {
		for i := range kinds {
			f.Add([]byte(s), i)
		}
	}
	f.Fuzz(func(t *testing.T, body []byte, kind int) {
		o, err := deleteOptions(kinds[uint(kind)%3], body)
		if err != nil {
			if _, ok := err.(apierrors.APIStatus); !ok {
				t.Fatalf("%T: %v", err, err)
			}
			return
		}
		if errs := metav1validation.ValidateDeleteOptions(o); len(errs) > 0 {
			t.Fatal(errs)
		}
		raw, err := o.Marshal()
		must.OK(t, err)
		var again metav1.DeleteOptions
		must.OK(t, again.Unmarshal(raw))
	})
}

// deleteOptions are those of a request with a body, if it has one.
func deleteOptions(contentType string, raw []byte) (*metav1.DeleteOptions, error) {
	if len(raw) == 0 {
		return new(Options).DeleteOptions()
	}
	body, err := codec.Decode(contentType, raw, nil)
	if err != nil {
		return nil, err
	}
	return DeleteOptionsOf(body.Object)
}
