package apiserver

import (
	"slices"

	"github.com/quorate/quorate/apiserver/codec"
	"github.com/quorate/quorate/apiserver/kinds"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/request"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
)

// readPosted reads what a POST to something that is not stored begins with: the
// options, the form of the answer, and the body as an object of res, straight into its
// type of k8s.io/api, as upstream decodes it. also are group versions whose objects of
// that kind look the same and are taken for res's.
func (c *call) readPosted(res *kinds.Resource, into runtime.Object, also ...string) (f codec.Format, err error) {
	if err = c.writeOptions("CreateOptions"); err != nil {
		return
	}
	if f, err = c.format(res, codec.ShapeOther); err != nil {
		return
	}
	raw, err := c.body(res)
	if err != nil {
		return f, err
	}
	strict := c.Options.Strictness() != request.IgnoreFields
	findings, gvk, err := codec.DecodeTyped(c.r.Header.Get("Content-Type"), raw, res, into, strict, func(apiVersion, kind string) (apischema.GroupVersionKind, error) {
		if slices.Contains(also, apiVersion) {
			apiVersion = res.GroupVersion().String()
		}
		return objects.SentKind(kind, apiVersion, res.GVK())
	})
	if err != nil {
		return f, err
	}
	return f, c.found(findings, gvk, res.Kind)
}

// wipeSystemFields clears metadata that a client cannot set.
func wipeSystemFields(m *metav1.ObjectMeta) {
	m.UID, m.CreationTimestamp, m.DeletionTimestamp, m.DeletionGracePeriodSeconds = "", metav1.Time{}, nil, nil
	m.SetSelfLink("")
}
