package apiserver

import (
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/objects/patch"
	"github.com/quorate/quorate/apiserver/wire/codec"
)

// isApply reports whether a PATCH is a server-side apply.
func (c *call) isApply() bool { return patch.IsApply(c.r.Header.Get("Content-Type")) }

// readApply reads a configuration.
func (c verbs) readApply(on objects.Target) (f codec.Format, want objects.Apply, err error) {
	if err = c.writeOptions(c.Options.CheckApply()); err != nil {
		return
	}
	kind := on.Kind(&c.Op)
	if f, err = c.format(kind, codec.ShapeObject); err != nil {
		return
	}
	raw, err := c.body(kind)
	if err != nil {
		return
	}
	want, err = c.DecodeApply(raw, on)
	return
}
