package apiserver

import (
	"net/http"
	"slices"

	"github.com/quorate/quorate/apiserver/codec"
	"github.com/quorate/quorate/apiserver/kinds"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/request"
	"github.com/quorate/quorate/apiserver/status"
	"k8s.io/apimachinery/pkg/runtime"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
)

// readPosted reads what a POST to something that is not stored begins with: the
// options, the form of the answer, and the body as an object of res, straight into its
// type of k8s.io/api, as upstream decodes it. also are group versions whose objects of
// that kind look the same and are taken for res's.
func (c *call) readPosted(res *kinds.Resource, into runtime.Object, also ...string) (f codec.Format, err error) {
	if err = c.writeOptions(c.Options.CheckModify("CreateOptions")); err != nil {
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
	return f, c.Found(findings, gvk, res.Kind)
}

// post serves a POST that stores no object of its own.
func (c *call) post(p *objects.Creater) error {
	res := p.Kind
	if res == nil {
		res = c.Resource
	}
	in := p.New()
	f, err := c.readPosted(res, in, p.Also...)
	if err != nil {
		return err
	}
	out, err := p.Create(&c.Op, in)
	if err != nil {
		return err
	}
	if out.Revision != 0 {
		c.setIndexHeader(out.Revision)
	}
	if out.Object == nil {
		done := status.OK()
		done.Code = http.StatusCreated
		codec.WriteStatus(c, c.r, done)
		return nil
	}
	return c.answerTyped(f, http.StatusCreated, res, out.Object)
}
