package apiserver_test

import (
	"io"
	"log/slog"
	"testing"
)

func testLog(t testing.TB) *slog.Logger {
	t.Helper()
	return slog.New(slog.NewTextHandler(io.Discard, nil))
}
