package apiserver

import "golang.org/x/sys/unix"

// States of TCP, as Linux numbers them.
const (
	tcpClose     = 7
	tcpCloseWait = 8
)

// peerClosed reports whether the other side has closed its direction of a socket, also behind what was not
// read yet.
func peerClosed(fd uintptr) bool {
	info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	return err == nil && (info.State == tcpClose || info.State == tcpCloseWait)
}
