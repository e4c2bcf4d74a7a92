package apiserver

import (
	"net/http"

	"github.com/quorate/quorate/apiserver/codec"
	"github.com/quorate/quorate/apiserver/tree"
)

// readWrite is how a write with an object begins: its options, the form of the
// answer, and the object, which fits the model.
func (c *call) readWrite(optionsKind string) (f codec.Format, obj tree.Object, err error) {
	if err = c.writeOptions(optionsKind); err != nil {
		return
	}
	if f, err = c.format(c.Resource, codec.ShapeObject); err != nil {
		return
	}
	model, err := c.Model()
	if err != nil {
		return
	}
	obj, err = c.readObject(c.Resource, model)
	return
}

func (c *call) create() error {
	f, obj, err := c.readWrite("CreateOptions")
	if err != nil {
		return err
	}
	w, err := c.Create(obj)
	if err != nil {
		return err
	}
	return c.answer(f, http.StatusCreated, w)
}
