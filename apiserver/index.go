package apiserver

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/wire/codec"
	"github.com/quorate/quorate/apiserver/wire/status"
)

// rootPaths is the list of paths that GET / answers with, for people who look
// around: upstream's form, sorted.
type rootPaths struct {
	Paths []string `json:"paths"`
}

// index answers GET / and /index.html. It is rare, so it keeps nothing.
func (s *Server) index(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		status.PlainNotFound(w, r)
		return
	}
	b, err := json.MarshalIndent(rootPaths{s.paths(s.cfg.Kinds())}, "", "  ")
	if err != nil {
		codec.WriteStatus(w, r, status.From(err))
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(b)))
	if r.Method == http.MethodGet {
		_, _ = w.Write(b) // a client that has gone needs no answer
	}
}

// paths lists what is mounted, and below discovery the groups and versions.
func (s *Server) paths(registry *kinds.Registry) []string {
	out := map[string]bool{}
	add := func(h http.Handler, paths ...string) {
		for _, p := range paths {
			out[p] = h != nil
		}
	}
	if add(s.cfg.Discovery, "/api", "/apis"); s.cfg.Discovery != nil {
		for _, r := range registry.All() {
			if r.Group == "" {
				out["/api/"+r.Version] = true
				continue
			}
			out["/apis/"+r.Group] = true
			out["/apis/"+r.Group+"/"+r.Version] = true
		}
	}
	add(s.cfg.OpenAPI, "/openapi/v2", "/openapi/v3")
	add(s.cfg.Version, "/version")
	add(s.cfg.Health, "/healthz", "/livez", "/readyz")
	add(s.cfg.Metrics, "/metrics")
	add(s.cfg.ZPages, "/flagz", "/statusz")
	paths := make([]string, 0, len(out))
	for p, served := range out {
		if served {
			paths = append(paths, p)
		}
	}
	slices.Sort(paths)
	return paths
}
