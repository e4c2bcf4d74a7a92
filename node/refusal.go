package node

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/quorate/quorate/apiserver/wire/codec"
	"github.com/quorate/quorate/apiserver/wire/status"
	"github.com/quorate/quorate/membership"
)

// refusal stops the API of a node whose state is wrong, or that was removed: what it would
// answer is not what the cluster holds. The zero value refuses nothing. Safe for concurrent use.
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
			answer := status.WrongState()
			if errors.Is(r.reason(), membership.ErrRemoved) {
				answer = status.RemovedNode()
			}
			codec.WriteStatus(w, req, status.From(answer))
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
