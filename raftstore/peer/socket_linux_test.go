package peer

import (
	"errors"
	"net"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"golang.org/x/sys/unix"
)

// TestTuneStream: the kernel has taken how long it may pause between two tries, and when a peer is gone.
func TestTuneStream(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	must.OK(t, err)
	defer conn.Close()
	tuneStream(conn)
	raw, err := conn.(*net.TCPConn).SyscallConn()
	must.OK(t, err)
	for name, option := range map[string]struct {
		number int
		want   int64
	}{
		"TCP_USER_TIMEOUT": {unix.TCP_USER_TIMEOUT, userTimeout.Milliseconds()},
		"TCP_RTO_MAX_MS":   {tcpRTOMax, retransmitWithin.Milliseconds()},
	} {
		var got int
		var err error
		must.OK(t, raw.Control(func(fd uintptr) { got, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, option.number) }))
		if option.number == tcpRTOMax && errors.Is(err, unix.ENOPROTOOPT) {
			t.Logf("%s: the kernel is before Linux 6.15", name)
			continue
		}
		if err != nil || int64(got) != option.want {
			t.Errorf("%s: %d, want %d; %v", name, got, option.want, err)
		}
	}
}
