package commands

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// The libraries of Kubernetes, such as the one that calls webhooks, log by klog, a line for
// each refusal: clients decide how many. net/http logs by the standard logger what servers
// sent out of turn, and in their bytes. They become lines of our log, at most so many a
// second; what is left out is counted in the next one.
const (
	libraryLines = 5
	libraryLine  = 2 << 10 // bytes of one
)

// libraryLogs sends what libraries log to our log. It is for the whole process.
func libraryLogs(log *slog.Logger) {
	klog.SetSlogLogger(slog.New(&libraryHandler{library: "kubernetes", out: log, now: time.Now}))
	slog.SetLogLoggerLevel(slog.LevelWarn) // the standard logger has no levels, and libraries use it to complain
	slog.SetDefault(slog.New(&libraryHandler{library: "go", out: log, now: time.Now}))
}

// libraryHandler is a slog.Handler with a bound on lines. It is safe for concurrent use.
type libraryHandler struct {
	library string
	out     *slog.Logger
	now     func() time.Time

	mu      sync.Mutex
	second  time.Time // that lines are counted in
	lines   int
	dropped int
}

// Enabled implements slog.Handler: klog's verbose lines are for people who debug the library.
func (*libraryHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo
}

// Handle implements slog.Handler.
func (h *libraryHandler) Handle(ctx context.Context, r slog.Record) error {
	if ownEnd(r) {
		return nil
	}
	dropped, ok := h.admit()
	if !ok {
		return nil
	}
	text := r.Message
	if len(text) > libraryLine {
		text = text[:libraryLine] + "..."
	}
	args := []any{"library", h.library, "text", text}
	r.Attrs(func(a slog.Attr) bool {
		args = append(args, a)
		return len(args) < 16
	})
	if dropped > 0 {
		args = append(args, "dropped", dropped)
	}
	level := slog.LevelInfo
	if r.Level >= slog.LevelWarn {
		level = slog.LevelWarn // what a library calls an error is none of the node's
	}
	h.out.Log(ctx, level, "a library logs", args...)
	return nil
}

// ownEnd reports whether a library complains of a connection that this process has closed itself: the one for
// WebSockets does so at each exec that is refused.
func ownEnd(r slog.Record) (own bool) {
	r.Attrs(func(a slog.Attr) bool {
		err, is := a.Value.Any().(error)
		own = is && errors.Is(err, net.ErrClosed) || a.Key == "err" && strings.HasSuffix(a.Value.String(), net.ErrClosed.Error())
		return !own
	})
	return own
}

// admit reports whether a line may be written, and how many were not since the last one.
func (h *libraryHandler) admit() (dropped int, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := h.now(); now.Sub(h.second) >= time.Second {
		h.second, h.lines = now, 0
	}
	if h.lines == libraryLines {
		h.dropped++
		return 0, false
	}
	h.lines++
	dropped, h.dropped = h.dropped, 0
	return dropped, true
}

// WithAttrs and WithGroup implement slog.Handler. klog's own loggers have none that matter here.
func (h *libraryHandler) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h *libraryHandler) WithGroup(string) slog.Handler      { return h }
