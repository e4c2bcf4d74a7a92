package node

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
)

func TestStatusLine(t *testing.T) {
	for _, x := range []struct {
		st   *proto.NodeStatus
		want string
	}{
		{&proto.NodeStatus{Role: "candidate"}, "candidate term 0, applied 0/0, leader none, 0 members, 0 of them voters"},
		{&proto.NodeStatus{Role: "follower", Term: 7, Applied: 12345, Commit: 12350, LeaderId: "ab", Members: []*proto.Member{{Voter: true}, {Voter: true}, {}}},
			"follower term 7, applied 12345/12350, leader ab, 3 members, 2 of them voters"},
		{&proto.NodeStatus{Role: "leader", Term: 1, LeaderId: "ab", LeaderName: "n2"}, "leader term 1, applied 0/0, leader n2, 0 members, 0 of them voters"},
	} {
		if got := statusLine(x.st); got != x.want {
			t.Errorf("got  %s\nwant %s", got, x.want)
		}
	}
}

// systemd is the socket that a service is told of.
func systemd(t *testing.T) *net.UnixConn {
	t.Helper()
	addr := &net.UnixAddr{Name: filepath.Join(t.TempDir(), "notify"), Net: "unixgram"}
	c, err := net.ListenUnixgram("unixgram", addr)
	must.OK(t, err)
	t.Cleanup(func() { c.Close() })
	t.Setenv("NOTIFY_SOCKET", addr.Name)
	return c
}

func told(t *testing.T, c *net.UnixConn) string {
	t.Helper()
	must.OK(t, c.SetReadDeadline(time.Now().Add(10*time.Second)))
	b := make([]byte, 4096)
	n, err := c.Read(b)
	if err != nil {
		t.Fatalf("systemd was told nothing: %v", err)
	}
	return string(b[:n])
}

func TestNotify(t *testing.T) {
	c := systemd(t)
	var n notifier
	n.loading()
	if got := told(t, c); !strings.Contains(got, "EXTEND_TIMEOUT_USEC=") || strings.Contains(got, "READY") {
		t.Errorf("loading: %q", got)
	}
	n.ready()
	if got := told(t, c); got != "READY=1" {
		t.Errorf("ready: %q", got)
	}
	n.stopping()
	if got := told(t, c); !strings.HasPrefix(got, "STOPPING=1\n") {
		t.Errorf("stopping: %q", got)
	}
}

// TestFollow: the status is told when it changes, and the watchdog is fed while
// the node is alive and not any more when it hangs.
func TestFollow(t *testing.T) {
	c := systemd(t)
	t.Setenv("WATCHDOG_USEC", "30000") // 30 ms, so that a look is due every 10
	ctx, cancel := context.WithCancel(t.Context())
	looks := 0
	status := func(context.Context) *proto.NodeStatus {
		looks++
		return &proto.NodeStatus{Role: "follower", Term: uint64(1 + looks/3)}
	}
	alive := func(time.Duration) bool { return looks < 6 }
	done := make(chan struct{})
	go func() {
		defer close(done)
		notifier{}.follow(ctx, status, alive)
	}()
	var heard []string
	for want := 5 + 4; len(heard) < want; { // five meals; terms 1, 2, 3 and 4
		heard = append(heard, told(t, c))
	}
	cancel()
	<-done
	fed, texts := 0, map[string]int{}
	for _, h := range heard {
		if h == "WATCHDOG=1" {
			fed++
			continue
		}
		texts[h]++
	}
	if fed != 5 {
		t.Errorf("fed %d times in %q", fed, heard)
	}
	if len(texts) != 4 {
		t.Errorf("told %v", texts)
	}
}
