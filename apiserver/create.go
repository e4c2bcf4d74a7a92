package apiserver

import (
	"errors"
	"net/http"

	"github.com/quorate/quorate/apiserver/objects"
)

func (c *call) create() error {
	f, raw, err := c.readWrite("CreateOptions", c.Resource)
	if err != nil {
		return err
	}
	w, err := c.createSent(raw)
	for errors.Is(err, objects.ErrDecideAgain) {
		w, err = c.createSent(raw)
	}
	if err != nil {
		return err
	}
	return c.answer(f, http.StatusCreated, w)
}

// createSent creates the object that was sent.
func (c *call) createSent(raw []byte) (objects.Written, error) {
	obj, err := c.DecodeBody(c.r.Header.Get("Content-Type"), raw, c.Resource)
	if err != nil {
		return objects.Written{}, err
	}
	return c.Create(obj)
}
