// Package health serves /livez, /readyz and /healthz in the text formats that
// load balancers, kubelets and scripts know.
//
// Liveness says that restarting the process would not help: its checks must not
// depend on other nodes, or a lost quorum would have every node restarted.
// Readiness says that the node can serve Most Recent reads now.
package health

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Check is one named condition.
type Check struct {
	Name string
	// Alias is a second name, for monitoring that knows the check by that of another
	// server: it has a line, a path and can be excluded as Name can, and means the same.
	// Empty: there is no other name.
	Alias string
	// Check returns nil if the condition holds. ctx ends with the request or
	// after Config.Timeout, whichever is first. Safe for concurrent use.
	Check func(ctx context.Context) error
}

// names are the names that clients may use for c.
func (c Check) names() []string {
	if c.Alias == "" {
		return []string{c.Name}
	}
	return []string{c.Name, c.Alias}
}

// Ping holds whenever the process answers.
var Ping = Check{Name: "ping", Check: func(context.Context) error { return nil }}

// DefaultTimeout bounds each check.
const DefaultTimeout = 2 * time.Second

// Config says what is checked.
type Config struct {
	// Livez must not depend on a quorum. Ping is added in front.
	Livez []Check
	// Readyz is checked after Ping; a check named "shutdown" is added behind.
	Readyz []Check
	// Healthz is the old path that clients such as envtest wait for. Nil: as Readyz,
	// without "shutdown".
	Healthz []Check
	// StartupGrace is how long after New the checks of /livez count as passed, so
	// that a long replay is not mistaken for a hang. Zero: no grace.
	StartupGrace time.Duration
	// Timeout bounds each check. Default: DefaultTimeout.
	Timeout time.Duration
	// Observe is told the outcome of each check; kind is livez, readyz or
	// healthz. May be nil.
	Observe func(name, kind string, ok bool)
	// Reveal says whether a failed single check may tell its reason to the
	// client of this context. Nil: never; the paths are public.
	Reveal func(ctx context.Context) bool
	// Log gets the reasons of failures. Default: slog.Default().
	Log *slog.Logger
}

// Handler serves the three paths and everything below them. It is safe for
// concurrent use and owns no goroutine.
type Handler struct {
	cfg      Config
	probes   map[string][]Check
	outcomes outcomes
	graceEnd time.Time
	stopping atomic.Bool
}

// New makes a handler.
func New(cfg Config) *Handler {
	if cfg.Timeout <= 0 {
		cfg.Timeout = DefaultTimeout
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	h := &Handler{cfg: cfg, outcomes: outcomes{of: map[[2]string]*outcome{}}, graceEnd: time.Now().Add(cfg.StartupGrace)}
	healthz := cfg.Healthz
	if healthz == nil {
		healthz = cfg.Readyz
	}
	shutdown := Check{Name: "shutdown", Check: func(context.Context) error {
		if h.stopping.Load() {
			return errors.New("process is shutting down")
		}
		return nil
	}}
	h.probes = map[string][]Check{
		"livez":   withPing(h.delayed(cfg.Livez)),
		"readyz":  append(withPing(cfg.Readyz), shutdown),
		"healthz": withPing(healthz),
	}
	return h
}

func withPing(checks []Check) []Check {
	return append([]Check{Ping}, checks...)
}

// delayed holds failures back until the grace is over.
func (h *Handler) delayed(checks []Check) []Check {
	out := make([]Check, len(checks))
	for i, c := range checks {
		out[i] = c
		out[i].Check = func(ctx context.Context) error {
			if time.Now().Before(h.graceEnd) {
				return nil
			}
			return c.Check(ctx)
		}
	}
	return out
}

// Shutdown makes /readyz fail from now on, so that load balancers turn away before
// the server stops accepting.
func (h *Handler) Shutdown() { h.stopping.Store(true) }

// ServeHTTP serves /livez, /readyz, /healthz and single checks below them.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "405 method not allowed", http.StatusMethodNotAllowed)
		return
	}
	kind, name, single := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	checks, ok := h.probes[kind]
	switch {
	case !ok:
		http.NotFound(w, r)
	case single && name != "":
		h.serveSingle(w, r, kind, name)
	default:
		h.serveAll(w, r, kind, checks)
	}
}

func (h *Handler) serveSingle(w http.ResponseWriter, r *http.Request, kind, name string) {
	for _, c := range h.probes[kind] {
		if !slices.Contains(c.names(), name) {
			continue
		}
		if err := h.run(r.Context(), kind, c); err != nil {
			reason := "reason withheld"
			if h.cfg.Reveal != nil && h.cfg.Reveal(r.Context()) {
				reason = err.Error()
			}
			http.Error(w, "internal server error: "+reason, http.StatusInternalServerError)
			return
		}
		ok(w)
		return
	}
	http.NotFound(w, r)
}

func (h *Handler) serveAll(w http.ResponseWriter, r *http.Request, kind string, checks []Check) {
	query := r.URL.Query()
	excluded := map[string]bool{} // name -> was found
	for _, name := range query["exclude"] {
		excluded[name] = false
	}
	var lines strings.Builder
	failed := false
	for _, c := range checks {
		format := "[+]%s ok\n"
		if exclude(excluded, c) {
			format = "[+]%s excluded: ok\n"
		} else if err := h.run(r.Context(), kind, c); err != nil {
			failed = true
			format = "[-]%s failed: reason withheld\n"
		}
		for _, name := range c.names() {
			fmt.Fprintf(&lines, format, name)
		}
	}
	if names := unmatched(excluded); names != "" {
		fmt.Fprintf(&lines, "warn: some health checks cannot be excluded: no matches for %s\n", names)
	}
	switch _, verbose := query["verbose"]; {
	case failed: // always verbose
		http.Error(w, lines.String()+kind+" check failed", http.StatusInternalServerError)
	case verbose:
		text(w)
		fmt.Fprintf(w, "%s%s check passed\n", lines.String(), kind)
	default:
		ok(w)
	}
}

// Ready runs the checks of /readyz for a program that has the server in its own process, and returns
// the first reason why it is not ready. It is not observed, and not logged.
func (h *Handler) Ready(ctx context.Context) error {
	for _, c := range h.probes["readyz"] {
		if err := h.check(ctx, c); err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	return nil
}

// run calls one check of a probe. It runs on the request's goroutine: a check that does not
// heed its context holds up this one probe and leaks nothing.
func (h *Handler) run(ctx context.Context, kind string, c Check) error {
	err := h.check(ctx, c)
	if h.cfg.Observe != nil {
		for _, name := range c.names() {
			h.cfg.Observe(name, kind, err == nil)
		}
	}
	if err == nil || ctx.Err() == nil { // a client that has gone says nothing about the check
		h.outcomes.note(h.cfg.Log, kind, c.Name, err)
	}
	return err
}

func (h *Handler) check(ctx context.Context, c Check) error {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.Timeout)
	defer cancel()
	err := c.Check(ctx)
	if err == nil && ctx.Err() != nil {
		err = fmt.Errorf("took longer than %s", h.cfg.Timeout)
	}
	return err
}

func text(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
}

func ok(w http.ResponseWriter) {
	text(w)
	_, _ = w.Write([]byte("ok"))
}
