package peer

import (
	"net"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quorate/quorate/internal/must"
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

// TestSpellings: a node that is asked for by two spellings of its address has one
// connection, and a call on it goes on.
func TestSpellings(t *testing.T) {
	for addr, want := range map[string]string{
		"10.0.0.1:7443": "10.0.0.1:7443", "10.0.0.1:07443": "10.0.0.1:7443", "[fe80::1]:007443": "[fe80::1]:7443", "node-a.example:70": "node-a.example:70",
		"a:0": "a:0", "a:00": "a:0", "a:": "a:", "a": "a", "": "",
	} {
		if got := spelled(addr); got != want {
			t.Errorf("%q is spelled %q, want %q", addr, got, want)
		}
	}
	a := newAuthority(t)
	h, _ := startHost(t, a, "a", nil)
	at, _ := startHost(t, a, "b", nil)
	host, port, err := net.SplitHostPort(at.Addr())
	must.OK(t, err)
	one, err := h.Conn("b", at.Addr())
	must.OK(t, err)
	other, err := h.Conn("b", net.JoinHostPort(host, "0"+port))
	if err != nil || one != other {
		t.Errorf("another connection (%v)", err)
	}
}
