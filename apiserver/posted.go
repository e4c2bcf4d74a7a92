package apiserver

import (
	"net/http"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/wire/codec"
	"github.com/quorate/quorate/apiserver/wire/status"
)

// post serves a POST that stores no object of its own.
func (c verbs) post(p *objects.Creater) error {
	res := p.KindOf(&c.Op)
	if err := c.writeOptions(c.Options.CheckModify("CreateOptions")); err != nil {
		return err
	}
	f, err := c.format(res, codec.ShapeOther)
	if err != nil {
		return err
	}
	raw, err := c.body(res)
	if err != nil {
		return err
	}
	out, err := c.PostSent(p, c.r.Header.Get("Content-Type"), raw)
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
