package peer

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quorate/quorate/proto"
)

// TestFound: a note counts for the configured address that it was made for, and
// only until it is taken back.
func TestFound(t *testing.T) {
	a := newAuthority(t)
	h, _ := startHost(t, a, "a", nil)
	at, _ := startHost(t, a, "b", nil)
	other, _ := startHost(t, a, "c", nil)
	steps := []struct {
		configured, found string // "" for configured: no note is made
		asked, want       string
	}{
		{"", "", "old:1", "old:1"},
		{"old:1", at.Addr(), "old:1", at.Addr()},
		{"", "", "newer:1", "newer:1"}, // the configuration has changed since
		{"old:1", other.Addr(), "old:1", other.Addr()},
		{"old:1", "old:1", "old:1", "old:1"},
		{"old:1", at.Addr(), "old:1", at.Addr()},
	}
	for i, s := range steps {
		if s.configured != "" {
			h.Found("b", s.configured, s.found)
		}
		if got := h.whereabouts("b", s.asked); got != s.want {
			t.Errorf("step %d: %s, want %s", i, got, s.want)
		}
		if got := h.whereabouts("c", s.asked); got != s.asked {
			t.Errorf("step %d: another node is at %s", i, got)
		}
	}
	call := func() error {
		_, err := peerOf(t, h, "b", "old:1").Status(inTime(t), &proto.StatusRequest{})
		return err
	}
	if err := call(); err != nil && status.Code(err) != codes.Unimplemented {
		t.Errorf("a call to where it was found: %v", err)
	}
	h.Found("b", "old:1", other.Addr())
	if err := call(); status.Code(err) != codes.Unavailable {
		t.Errorf("another node answered for it: %v", err)
	}
}
