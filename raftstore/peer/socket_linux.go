package peer

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// userTimeout ends a connection whose data nobody acknowledges. It also runs
// while the receiver keeps its window closed, so it must exceed the longest
// time that a follower may spend on its disk without reading.
const userTimeout = 30 * time.Second

// retransmitWithin is the longest pause between two tries to send what nobody has acknowledged. The kernel doubles
// the pause from try to try: where a link was cut for 10 s, what waits behind it would wait for up to
// 6 s more after that. On a link that is cut it costs a packet a second.
const retransmitWithin = time.Second

// tcpRTOMax is TCP_RTO_MAX_MS, of Linux 6.15 and later.
const tcpRTOMax = 44

// setRetransmit has a connection notice soon that a link is there again. Errors: older kernels do not know the option.
func setRetransmit(c *net.TCPConn) error {
	return setTCP(c, tcpRTOMax, retransmitWithin)
}

// setUserTimeout is for streams that may send for hours under one deadline (a
// snapshot): a black hole on the way must end them sooner.
func setUserTimeout(c *net.TCPConn) error { return setTCP(c, unix.TCP_USER_TIMEOUT, userTimeout) }

func setTCP(c *net.TCPConn, option int, value time.Duration) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, option, int(value.Milliseconds()))
	})
	if err != nil {
		return err
	}
	return set
}
