package apiserver

import (
	"net/http"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/apiserver/wire/codec"
)

// modify serves a PUT, a patch or an apply of an object, of a part of it, or of its scale: what
// the body says is the source, what of the object it may change is the target, and every source
// goes with every target.
func (c verbs) modify(on objects.Target) error {
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
		shown := on.Shown(&c.Op, w.Object)
		if w.Version != nil { // the object was decided when it had none yet
			tree.As(shown["metadata"])["resourceVersion"] = w.Version.Revision.String()
		}
		return codec.Respond(c, c.r, f).Tree(http.StatusOK, kind, shown)
	}
	return c.answer(f, codeOf(w.Created), w)
}

// readPut reads what is to be what the path names.
func (c verbs) readPut(on objects.Target) (f codec.Format, want objects.Put, err error) {
	f, raw, err := c.readWrite("UpdateOptions", on.Kind(&c.Op))
	if err != nil {
		return
	}
	want, err = c.DecodePut(c.r.Header.Get("Content-Type"), raw, on)
	return
}

// readWrite is how a write with an object of a kind begins: its options, the form of the
// answer, and the body.
func (c verbs) readWrite(options string, kind *kinds.Resource) (f codec.Format, raw []byte, err error) {
	if err = c.writeOptions(c.Options.CheckModify(options)); err != nil {
		return
	}
	if f, err = c.format(kind, codec.ShapeObject); err != nil {
		return
	}
	raw, err = c.body(kind)
	return
}
