package apiserver

import (
	"net/http"

	"github.com/quorate/quorate/apiserver/codec"
	"github.com/quorate/quorate/apiserver/kinds"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/patch"
	"github.com/quorate/quorate/apiserver/request"
	"github.com/quorate/quorate/apiserver/status"
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

// readPut reads a body that is to be what the path names.
func (c *call) readPut(on objects.Target) (codec.Format, objects.Put, error) {
	f, sent, err := c.readWrite("UpdateOptions", on.Kind(&c.Op))
	if err == nil {
		err = c.MatchPath(sent)
	}
	return f, objects.Put{Sent: sent}, err
}

// readWrite is how a write with an object begins: its options, the form of the
// answer, and the object, which is of a kind and fits its model.
func (c *call) readWrite(options string, kind *kinds.Resource) (f codec.Format, obj tree.Object, err error) {
	if err = c.writeOptions(c.Options.CheckModify(options)); err != nil {
		return
	}
	if f, err = c.format(kind, codec.ShapeObject); err != nil {
		return
	}
	model, err := objects.ModelOf(kind)
	if err != nil {
		return
	}
	obj, err = c.readObject(kind, model)
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
	body, err := codec.Decode(codec.YAML, raw, kind)
	if err != nil {
		return
	}
	if err = c.checkApplied(&body); err != nil {
		return
	}
	if want.Model, err = c.Model(); err != nil {
		return
	}
	if want.Manager, err = c.FieldManager(); err != nil {
		return
	}
	want.Tree, err = on.Configuration(&c.Op, body.Object, want.Model)
	return
}

// checkApplied refuses or warns about what an apply's body has besides an object. Fields that
// are unknown are the merge's to find.
func (c *call) checkApplied(body *codec.Body) error {
	if body.Object == nil {
		return status.BadRequest("error decoding YAML: the body is not an object")
	}
	if len(body.Duplicates) == 0 {
		return nil
	}
	switch c.Options.Strictness() {
	case request.StrictFields:
		return status.BadRequest("error strict decoding YAML: %s", objects.JoinFindings(body.Duplicates))
	case request.WarnFields:
		c.Warn(body.Duplicates)
	}
	return nil
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
