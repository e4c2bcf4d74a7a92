package peer

import (
	"bytes"
	"io"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// hclogTo is a logger for hashicorp's code that writes to l.
func hclogTo(l *slog.Logger) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{
		Level: hclog.Warn, Output: slogWriter{l}, DisableTime: true,
	})
}

// slogWriter takes hclog's lines, "[LEVEL] text".
type slogWriter struct{ l *slog.Logger }

var _ io.Writer = slogWriter{}

func (w slogWriter) Write(p []byte) (int, error) {
	text := bytes.TrimSpace(p)
	if bytes.HasPrefix(text, []byte("[ERROR]")) {
		w.l.Error("raft transport", "detail", string(bytes.TrimSpace(text[len("[ERROR]"):])))
	} else {
		w.l.Warn("raft transport", "detail", string(bytes.TrimSpace(bytes.TrimPrefix(text, []byte("[WARN]")))))
	}
	return len(p), nil
}
