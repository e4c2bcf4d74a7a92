package localproxy

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
)

// errItself is why an address is not dialled: each connection would make another one, without an end.
var errItself = errors.New("it is this proxy itself")

// IsItself reports whether an address, host:port, is that of a listener. Of names, which others may answer
// or not, only localhost is looked up.
func IsItself(listener net.Addr, address string) bool {
	l, ok := listener.(*net.TCPAddr)
	if !ok {
		return false
	}
	at := l.AddrPort()
	host, port, err := net.SplitHostPort(address)
	if err != nil || port != fmt.Sprint(at.Port()) {
		return false
	}
	if host == "localhost" {
		return isItself(at, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), at.Port())) ||
			isItself(at, netip.AddrPortFrom(netip.IPv6Loopback(), at.Port()))
	}
	to, err := netip.ParseAddrPort(address)
	return err == nil && isItself(at, to)
}

func isItself(listener, to netip.AddrPort) bool {
	at, ip := listener.Addr().Unmap(), to.Addr().Unmap()
	if listener.Port() != to.Port() {
		return false
	}
	if !at.IsUnspecified() {
		return at.WithZone("") == ip.WithZone("")
	}
	if ip.IsLoopback() || ip.IsUnspecified() {
		return true
	}
	// To reach an address of its own a host takes that address. Nothing is sent. (The list of a host's
	// addresses needs a kind of socket that a unit may not allow.)
	c, err := net.Dial("udp", to.String())
	if err != nil {
		return false
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap().WithZone("") == ip.WithZone("")
}

// dialer dials nodes, and not this proxy, whatever a name stands for.
func (b *Balancer) dialer() *net.Dialer {
	return &net.Dialer{Control: func(_, address string, _ syscall.RawConn) error {
		if IsItself(b.cfg.Itself, address) {
			return errItself
		}
		return nil
	}}
}
