package apiserver

import "net/http"

func (c *call) create() error {
	f, raw, err := c.readWrite("CreateOptions", c.Resource)
	if err != nil {
		return err
	}
	obj, err := c.DecodeBody(c.r.Header.Get("Content-Type"), raw, c.Resource)
	if err != nil {
		return err
	}
	w, err := c.Create(obj)
	if err != nil {
		return err
	}
	return c.answer(f, http.StatusCreated, w)
}
