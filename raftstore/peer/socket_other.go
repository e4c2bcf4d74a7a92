//go:build !linux

package peer

import "net"

// setUserTimeout: other systems rely on keepalive alone.
func setUserTimeout(*net.TCPConn) error { return nil }

// setRetransmit: other systems have their own pauses.
func setRetransmit(*net.TCPConn) error { return nil }
