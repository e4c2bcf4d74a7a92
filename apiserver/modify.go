package apiserver

import (
	"net/http"

	"github.com/quorate/quorate/apiserver/codec"
	"github.com/quorate/quorate/apiserver/kinds"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/patch"
	"github.com/quorate/quorate/apiserver/tree"
)

// modify serves a PUT, a patch or an apply of an object, of a part of it, or of its scale: what
// the body says is the source, what of the object it may change is the target, and every source
// goes with every target.
func (c *call) modify(on objects.Target) error {
	var (
		f    codec.Format
		want objects.Source
		err  error
	)
	switch {
	case c.Info.Verb == "update":
		f, want, err = c.readPut(on)
	case c.isApply():
		f, want, err = c.readApply(on)
	default:
		f, want, err = c.readPatch(on)
	}
	if err != nil {
		return err
	}
	w, err := c.Modify(want, on)
	if err != nil {
		return err
	}
	if kind := on.Kind(&c.Op); kind != c.Resource {
		return codec.Respond(c, c.r, f).Tree(http.StatusOK, kind, on.Shown(&c.Op, w.Object))
	}
	return c.answer(f, codeOf(w.Created), w)
}

// readPut reads what is to be what the path names.
func (c *call) readPut(on objects.Target) (f codec.Format, want objects.Put, err error) {
	f, raw, err := c.readWrite("UpdateOptions", on.Kind(&c.Op))
	if err != nil {
		return
	}
	want, err = c.DecodePut(c.r.Header.Get("Content-Type"), raw, on)
	return
}

// readWrite is how a write with an object of a kind begins: its options, the form of the
// answer, and the body.
func (c *call) readWrite(options string, kind *kinds.Resource) (f codec.Format, raw []byte, err error) {
	if err = c.writeOptions(c.Options.CheckModify(options)); err != nil {
		return
	}
	if f, err = c.format(kind, codec.ShapeObject); err != nil {
		return
	}
	raw, err = c.body(kind)
	return
}

// isApply reports whether a PATCH is a server-side apply.
func (c *call) isApply() bool { return patch.IsApply(c.r.Header.Get("Content-Type")) }

// readPatch reads a patch.
func (c *call) readPatch(on objects.Target) (f codec.Format, want objects.Patch, err error) {
	// The type first: options such as force belong to some types only.
	if err = patch.Check(c.r.Header.Get("Content-Type"), c.Resource.Custom); err != nil {
		return
	}
	if err = c.writeOptions(c.Options.CheckModify("PatchOptions")); err != nil {
		return
	}
	if f, err = c.format(c.Resource, codec.ShapeObject); err != nil {
		return
	}
	if kind := on.Kind(&c.Op); kind != c.Resource {
		if f, err = c.format(kind, codec.ShapeObject); err != nil {
			return
		}
	}
	raw, err := c.body(c.Resource)
	if err != nil {
		return
	}
	want.Patch, err = patch.Parse(c.r.Header.Get("Content-Type"), raw, c.Resource.Custom)
	return
}

// readApply reads a configuration.
func (c *call) readApply(on objects.Target) (f codec.Format, want objects.Apply, err error) {
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

// put serves a subresource that the whole object is put to and that changes it in a way
// of its own.
func (c *call) put(change func(o *objects.Op, sent tree.Object) (objects.Written, error)) error {
	f, want, err := c.readPut(objects.Whole)
	if err != nil {
		return err
	}
	w, err := change(&c.Op, want.Sent)
	if err != nil {
		return err
	}
	return c.answer(f, codeOf(false), w)
}
