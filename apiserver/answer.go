package apiserver

import (
	"fmt"
	"net/http"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/apiserver/wire/codec"
	"k8s.io/apimachinery/pkg/runtime"
)

// answer sends the object of a write.
func (c verbs) answer(f codec.Format, code int, w objects.Written) error {
	if w.Version == nil {
		return codec.Respond(c, c.r, f).Tree(code, c.Resource, w.Object)
	}
	c.setIndexHeader(w.Version.Revision)
	v, err := c.ConvertOne(w.Version)
	if err != nil {
		return err
	}
	return codec.Respond(c, c.r, f).Object(code, c.Resource, v)
}

func codeOf(created bool) int {
	if created {
		return http.StatusCreated
	}
	return http.StatusOK
}

// answerTyped sends an object of a type of k8s.io/api that is not stored.
func (c verbs) answerTyped(f codec.Format, code int, res *kinds.Resource, obj any) error {
	t, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return fmt.Errorf("encode %s: %w", res.Kind, err)
	}
	if meta := tree.As(t["metadata"]); meta["creationTimestamp"] == nil {
		delete(meta, "creationTimestamp")
	}
	t["kind"], t["apiVersion"] = res.Kind, res.GroupVersion().String()
	return codec.Respond(c, c.r, f).Tree(code, res, t)
}
