package codec

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/internal/must"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	upstream "k8s.io/apimachinery/pkg/runtime/serializer/json"
)

var reviewResource = &kinds.Resource{Group: authorizationv1.GroupName, Version: "v1", Kind: "SubjectAccessReview", Plural: "subjectaccessreviews"}

func asReview(apiVersion, kind string) (schema.GroupVersionKind, error) {
	return reviewResource.GVK(), nil
}

// TestDecodeTypedAsUpstream: what comes of a body, and what strict decoding finds in it, is
// what upstream's serializers make of it.
func TestDecodeTypedAsUpstream(t *testing.T) {
	for _, c := range []struct{ name, contentType, body string }{
		{"whole", JSON, `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","metadata":{"creationTimestamp":null},"spec":{"user":"u","groups":["a","b"],"extra":{"x":["y"]},"resourceAttributes":{"verb":"get","resource":"pods"}}}`},
		{"without its names", JSON, `{"spec":{"user":"u"}}`},
		{"empty", JSON, `{}`},
		{"null", JSON, `null`},
		{"nothing", JSON, ``},
		{"cut", JSON, `{"spec":{`},
		{"an array", JSON, `[]`},
		{"a number for a kind", JSON, `{"kind":1}`},
		{"unknown fields", JSON, `{"spec":{"user":"u","typo":{"deep":[1,2]},"resourceAttributes":{"verb":"get","b":1,"a":2}},"more":1}`},
		{"another case", JSON, `{"spec":{"User":"u"}}`},
		{"its names in another case", JSON, `{"KIND":"SubjectAccessReview","ApiVersion":"authorization.k8s.io/v1","spec":{"user":"u"}}`},
		{"duplicates", JSON, `{"spec":{"user":"u","user":"v","typo":1,"typo":2}}`},
		{"another type", JSON, `{"spec":{"user":1}}`},
		{"another type, deeper", JSON, `{"spec":{"resourceAttributes":{"verb":["get"]}}}`},
		{"an object for a list", JSON, `{"spec":{"groups":{"a":1}}}`},
		{"not a time", JSON, `{"metadata":{"creationTimestamp":"yesterday"}}`},
		{"nulls", JSON, `{"spec":{"user":null,"groups":null,"resourceAttributes":null}}`},
		{"behind the end", JSON, `{} {}`},
		{"deep", JSON, `{"spec":` + strings.Repeat(`{"x":`, 20000) + `1` + strings.Repeat(`}`, 20000) + `}`},
		{"YAML", YAML, "spec:\n  user: u\n  groups: [a]\n"},
		{"YAML with unknown fields", YAML, "spec:\n  user: u\n  typo: 1\n"},
		{"YAML with duplicates", YAML, "spec:\n  user: u\n  user: v\n"},
		{"YAML of another type", YAML, "spec:\n  user: 1\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, strict := range []bool{true, false} {
				s := upstream.NewSerializerWithOptions(upstream.DefaultMetaFactory, scheme, scheme, upstream.SerializerOptions{Strict: strict, Yaml: c.contentType == YAML})
				var want, got authorizationv1.SubjectAccessReview
				gvk := reviewResource.GVK()
				_, _, wantErr := s.Decode([]byte(c.body), &gvk, &want)
				findings, _, err := DecodeTyped(c.contentType, []byte(c.body), reviewResource, &got, strict, asReview)
				if strictErr, ok := runtime.AsStrictDecodingError(wantErr); ok {
					var texts []string
					for _, e := range strictErr.Errors() {
						texts = append(texts, e.Error())
					}
					if strings.Join(texts, "\n") != strings.Join(findings, "\n") {
						t.Errorf("strict %t: it finds %q, upstream %q", strict, findings, texts)
					}
					wantErr = nil
				} else if len(findings) > 0 {
					t.Errorf("strict %t: it finds %q, upstream nothing", strict, findings)
				}
				if (err == nil) != (wantErr == nil) || err != nil && !strings.Contains(err.Error(), wantErr.Error()) {
					t.Errorf("strict %t: %v, upstream %v", strict, err, wantErr)
				}
				if err != nil && !apierrors.IsBadRequest(err) {
					t.Errorf("strict %t: not a 400: %v", strict, err)
				}
				if err == nil && !equality.Semantic.DeepEqual(got, want) {
					t.Errorf("strict %t: %+v, upstream %+v", strict, got, want)
				}
			}
		})
	}
}

// TestDecodeTypedProtobuf: also from protobuf, whose message may not be what it says.
func TestDecodeTypedProtobuf(t *testing.T) {
	want := authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "u", Groups: []string{"g"}}}
	message, err := want.Marshal()
	must.OK(t, err)
	whole := appendDocument(nil, "authorization.k8s.io/v1", "SubjectAccessReview", message)
	var got authorizationv1.SubjectAccessReview
	if _, _, err := DecodeTyped(Protobuf, whole, reviewResource, &got, true, asReview); err != nil || !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("%+v %v", got, err)
	}
	for name, body := range map[string][]byte{
		"nothing": nil, "no magic": []byte("{}"), "cut": whole[:len(whole)-8], "another message": appendDocument(nil, "v1", "X", []byte{0xff, 0xff}),
		"deep": appendDocument(nil, "", "", bytes.Repeat([]byte{0x12, 0x7f}, 4000)),
	} {
		if _, _, err := DecodeTyped(Protobuf, body, reviewResource, new(authorizationv1.SubjectAccessReview), true, asReview); !apierrors.IsBadRequest(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	refused := errors.New("another kind")
	_, _, err = DecodeTyped(Protobuf, whole, reviewResource, &got, true, func(apiVersion, kind string) (schema.GroupVersionKind, error) {
		if apiVersion != "authorization.k8s.io/v1" || kind != "SubjectAccessReview" {
			t.Errorf("it calls itself %s %s", apiVersion, kind)
		}
		return schema.GroupVersionKind{}, refused
	})
	if !errors.Is(err, refused) {
		t.Error(err)
	}
	if _, _, err := DecodeTyped("text/plain", whole, reviewResource, &got, true, asReview); !apierrors.IsUnsupportedMediaType(err) {
		t.Errorf("another medium: %v", err)
	}
}

// BenchmarkDecodeReview is what a webhook authorizer sends for each request that it is
// asked about.
func BenchmarkDecodeReview(b *testing.B) {
	body := []byte(`{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","metadata":{"creationTimestamp":null},"spec":{"user":"system:serviceaccount:default:x","groups":["system:serviceaccounts","system:serviceaccounts:default","system:authenticated"],"extra":{"authentication.kubernetes.io/pod-name":["x-1"]},"resourceAttributes":{"namespace":"default","verb":"get","resource":"pods","name":"x-1","version":"v1"}},"status":{"allowed":false}}`)
	b.ReportAllocs()
	for b.Loop() {
		var r authorizationv1.SubjectAccessReview
		if _, _, err := DecodeTyped(JSON, body, reviewResource, &r, true, asReview); err != nil {
			b.Fatal(err)
		}
	}
}
