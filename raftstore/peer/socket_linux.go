package peer

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// userTimeout ends a connection whose data nobody acknowledges. It also runs
// while the receiver keeps its window closed, so it must exceed the longest
// time that a follower may spend on its disk without reading.
const userTimeout = 30 * time.Second

// setUserTimeout is for streams that may send for hours under one deadline (a
// snapshot): a black hole on the way must end them sooner.
func setUserTimeout(c *net.TCPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	return controlUserTimeout(raw)
}

func controlUserTimeout(raw syscall.RawConn) error {
	var set error
	err := raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout.Milliseconds()))
	})
	if err != nil {
		return err
	}
	return set
}
