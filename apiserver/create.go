package apiserver

import "net/http"

func (c *call) create() error {
	f, obj, err := c.readWrite("CreateOptions", c.Resource)
	if err != nil {
		return err
	}
	w, err := c.Create(obj)
	if err != nil {
		return err
	}
	return c.answer(f, http.StatusCreated, w)
}
