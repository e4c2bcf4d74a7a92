package main

import (
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/quorate/quorate/apiserver/codec"
	"github.com/quorate/quorate/apiserver/status"
)

// refusal stops the API of a node whose state is wrong: what it would answer is not
// what the cluster holds. The zero value refuses nothing. Safe for concurrent use.
type refusal struct{ why atomic.Pointer[error] }

// refuse is final: the process ends soon after.
func (r *refusal) refuse(err error) { r.why.CompareAndSwap(nil, &err) }

// reason is why nothing is served, or nil.
func (r *refusal) reason() error {
	if why := r.why.Load(); why != nil {
		return *why
	}
	return nil
}

// before refuses every request with 503 and a Status, but those that ask how the node
// is. The details are in the log: this comes before authentication.
func (r *refusal) before(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if r.reason() != nil && !aboutTheNode(req.URL.Path) {
			codec.WriteStatus(w, req, status.From(status.WrongState()))
			return
		}
		h.ServeHTTP(w, req)
	})
}

// aboutTheNode reports whether a path says nothing about objects.
func aboutTheNode(path string) bool {
	kind, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch kind {
	case "livez", "readyz", "healthz", "metrics":
		return true
	}
	return path == "/quorate/v1/status"
}
