package apiserver

import "net/http"

func (c verbs) create() error {
	f, raw, err := c.readWrite("CreateOptions", c.Resource)
	if err != nil {
		return err
	}
	w, err := c.CreateSent(c.r.Header.Get("Content-Type"), raw)
	if err != nil {
		return err
	}
	return c.answer(f, http.StatusCreated, w)
}
