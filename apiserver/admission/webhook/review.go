package webhook

import (
	"encoding/json"

	"github.com/quorate/quorate/apiserver/wire/codec"
	admissionv1 "k8s.io/api/admission/v1"
	admissionv1beta1 "k8s.io/api/admission/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	upstream "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/generic"
	"k8s.io/apiserver/pkg/authentication/user"
)

// uidLength is that of the UID of a review, a UUID.
const uidLength = 36

// review is an AdmissionReview as it is sent, but for its UID. Webhooks that are asked about the
// same object share it.
type review struct {
	key  reviewKey
	body []byte
	uid  int // where the UID is
}

// reviewKey is what reviews differ by.
type reviewKey struct {
	version     schema.GroupVersion // of the review
	object, old runtime.Object
	kind        schema.GroupVersionKind
	resource    schema.GroupVersionResource
	subresource string
}

// reviews are those of one decision.
type reviews []*review

// of returns the review for a webhook. Errors: the object has what JSON cannot say.
func (all *reviews) of(version schema.GroupVersion, attr *upstream.VersionedAttributes, invocation *generic.WebhookInvocation) (*review, error) {
	key := reviewKey{version, attr.VersionedObject, attr.VersionedOldObject, invocation.Kind, invocation.Resource, invocation.Subresource}
	for _, r := range *all {
		if r.key == key {
			return r, nil
		}
	}
	r := &review{key: key, body: make([]byte, 0, 4<<10)}
	if err := r.encode(attr); err != nil {
		return nil, err
	}
	*all = append(*all, r)
	return r, nil
}

// with is the review with a UID.
func (r *review) with(uid string) []byte {
	b := append(make([]byte, 0, len(r.body)), r.body...)
	copy(b[r.uid:r.uid+uidLength], uid)
	return b
}

// encode writes what upstream's CreateV1AdmissionReview makes, whose fields those of v1beta1 are as
// well.
func (r *review) encode(attr *upstream.VersionedAttributes) error {
	b := append(r.body, `{"kind":"AdmissionReview","apiVersion":"`...)
	b = append(b, r.key.version.String()...)
	b = append(b, `","request":{"uid":"`...)
	r.uid = len(b)
	for range uidLength {
		b = append(b, '0')
	}
	b = append(b, '"')
	b = appendKind(append(b, `,"kind":`...), r.key.kind)
	b = appendResource(append(b, `,"resource":`...), r.key.resource)
	b = appendMember(b, "subResource", r.key.subresource)
	b = appendKind(append(b, `,"requestKind":`...), attr.Attributes.GetKind())
	b = appendResource(append(b, `,"requestResource":`...), attr.Attributes.GetResource())
	b = appendMember(b, "requestSubResource", attr.Attributes.GetSubresource())
	b = appendMember(b, "name", attr.Attributes.GetName())
	b = appendMember(b, "namespace", attr.Attributes.GetNamespace())
	b = appendString(append(b, `,"operation":`...), string(attr.Attributes.GetOperation()))
	b = appendUser(append(b, `,"userInfo":`...), attr.Attributes.GetUserInfo())
	var err error
	if b, err = appendObject(append(b, `,"object":`...), r.key.object); err != nil {
		return err
	}
	if b, err = appendObject(append(b, `,"oldObject":`...), r.key.old); err != nil {
		return err
	}
	if b = append(b, `,"dryRun":false`...); attr.Attributes.IsDryRun() {
		b = append(b[:len(b)-len("false")], "true"...)
	}
	if b, err = appendObject(append(b, `,"options":`...), attr.Attributes.GetOperationOptions()); err != nil {
		return err
	}
	r.body = append(b, "}}\n"...)
	return nil
}

// appendObject appends an object, null if there is none.
func appendObject(b []byte, obj runtime.Object) ([]byte, error) {
	switch obj := obj.(type) {
	case nil:
		return append(b, "null"...), nil
	case runtime.Unstructured:
		return codec.AppendTree(b, obj.UnstructuredContent())
	}
	raw, err := json.Marshal(obj)
	return append(b, raw...), err
}

func appendKind(b []byte, k schema.GroupVersionKind) []byte {
	b = appendString(append(b, `{"group":`...), k.Group)
	b = appendString(append(b, `,"version":`...), k.Version)
	return append(appendString(append(b, `,"kind":`...), k.Kind), '}')
}

func appendResource(b []byte, r schema.GroupVersionResource) []byte {
	b = appendString(append(b, `{"group":`...), r.Group)
	b = appendString(append(b, `,"version":`...), r.Version)
	return append(appendString(append(b, `,"resource":`...), r.Resource), '}')
}

// appendMember appends a member of an object that has one already, unless it is empty.
func appendMember(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	b = append(b, `,"`...)
	b = append(b, name...)
	return appendString(append(b, `":`...), value)
}

// appendUser appends a user. What is empty is left out.
func appendUser(b []byte, u user.Info) []byte {
	b = append(b, '{')
	start := len(b)
	b = appendMember(b, "username", u.GetName())
	b = appendMember(b, "uid", u.GetUID())
	if groups := u.GetGroups(); len(groups) > 0 {
		b = appendStrings(append(b, `,"groups":`...), groups)
	}
	if extra := u.GetExtra(); len(extra) > 0 {
		raw, err := json.Marshal(extra)
		if err != nil {
			panic(err) // a map of strings has none
		}
		b = append(append(b, `,"extra":`...), raw...)
	}
	if len(b) > start {
		b = append(b[:start], b[start+1:]...) // the comma before the first
	}
	return append(b, '}')
}

func appendStrings(b []byte, all []string) []byte {
	b = append(b, '[')
	for i, s := range all {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, s)
	}
	return append(b, ']')
}

// appendString appends a string as encoding/json has it.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			raw, err := json.Marshal(s)
			if err != nil {
				panic(err) // a string has none
			}
			return append(b, raw...)
		}
	}
	b = append(append(b, '"'), s...)
	return append(b, '"')
}

var (
	v1      = admissionv1.SchemeGroupVersion
	v1beta1 = admissionv1beta1.SchemeGroupVersion
)
