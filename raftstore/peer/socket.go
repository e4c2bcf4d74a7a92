package peer

import (
	"net"
	"time"
)

// tcpKeepalive finds a dead peer on an idle connection within about 11 s.
var tcpKeepalive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}

// tuneStream makes the kernel notice a peer that is gone. A socket that will
// not take an option still works, so errors are of no consequence.
func tuneStream(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetKeepAliveConfig(tcpKeepalive)
		_ = setUserTimeout(tcp)
		_ = setRetransmit(tcp)
	}
}
