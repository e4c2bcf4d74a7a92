package commands

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// TestLogIsReadable: JSON says what the text says, with units and in words.
func TestLogIsReadable(t *testing.T) {
	var b bytes.Buffer
	log, _ := newLogger(&settings{LogFormat: "json", LogLevel: "info"}, &b)
	log.Info("m", "took", 3428565*time.Nanosecond, "remote", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9102},
		"peer", raft.Server{Suffrage: raft.Voter, ID: "a", Address: "b:1"}, "error", errors.New("e"), "count", 7, slog.Group("g", "d", time.Minute))
	for _, want := range []string{
		`"took":"3.428565ms"`, `"remote":"127.0.0.1:9102"`, `"peer":"{Suffrage:Voter ID:a Address:b:1}"`, `"error":"e"`, `"count":7`, `"g":{"d":"1m0s"}`,
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%s is not in %s", want, &b)
		}
	}
}
