package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Admin sends requests that are no part of what is measured, over links of its own.
type Admin struct {
	Links  []*Link // one to each server
	Within time.Duration
}

// Admin is one of the cluster.
func (c Cluster) Admin(within time.Duration) *Admin {
	a := &Admin{Within: within}
	for _, n := range c.Servers() {
		a.Links = append(a.Links, c.Link(n, within))
	}
	return a
}

// Link is a way to a node, which sends the cluster's token.
func (c Cluster) Link(n Node, within time.Duration) *Link {
	l := NewLink(n, c.TLS, within)
	l.Authorize(c.Token)
	return l
}

// Do sends a request to a server.
func (a *Admin) Do(ctx context.Context, server int, method, path string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, a.Within)
	defer cancel()
	header := JSONBody
	if method == http.MethodPatch {
		header = MergeBody
	}
	var answer bytes.Buffer
	_, err := a.Links[server].Do(ctx, Request{Method: method, Path: path, Header: header, Body: body}, &answer)
	return answer.Bytes(), err
}

// Any sends a request to the first server that answers it with success.
func (a *Admin) Any(ctx context.Context, method, path string, body []byte) (answer []byte, err error) {
	err = errors.New("no server")
	for i := 0; i < len(a.Links) && err != nil; i++ {
		answer, err = a.Do(ctx, i, method, path, body)
	}
	return answer, err
}

// Remove deletes what is at paths, one after the other, through any server. What is not there is no error. A deletion of
// more than the history lasts for ends with 410 and has deleted what it has come to: it goes on.
func (a *Admin) Remove(ctx context.Context, paths ...string) error {
	var errs []error
	for _, path := range paths {
		_, err := a.Any(ctx, http.MethodDelete, path, nil)
		for Refused(err, http.StatusGone) {
			_, err = a.Any(ctx, http.MethodDelete, path, nil)
		}
		if err != nil && !Refused(err, http.StatusNotFound) {
			errs = append(errs, fmt.Errorf("%s is left behind: %w", path, err))
		}
	}
	return errors.Join(errs...)
}

// Close closes the links.
func (a *Admin) Close() { _ = CloseLinks(a.Links) } // nothing is sent any more
