package apiserver

import (
	"net/http"

	"github.com/quorate/quorate/apiserver/wire/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// What is really code. Everything that is not in this table is the same for
// every kind, and handlers never look at a kind's name.

func (c verbs) virtual() error {
	if p := c.Strategy().Post; p != nil {
		return c.post(p)
	}
	return notImplemented(c.Resource.GroupResource(), "")
}

// notImplemented refuses by name what discovery lists and this version cannot
// do yet.
func notImplemented(resource schema.GroupResource, sub string) error {
	what := resource.String()
	if sub != "" {
		what += "/" + sub
	}
	s := status.From(status.BadRequest("%s is not implemented by this version of the server", what))
	s.Code, s.Reason = http.StatusNotImplemented, metav1.StatusReason("NotImplemented")
	return &apierrors.StatusError{ErrStatus: *s}
}
