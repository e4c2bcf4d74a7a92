package aggregator

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

var dialer = net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second, Control: refuseOwn}

// Dial connects to the address of a Service, unless that is one which only this host reaches: a user who
// may write a Service of the type ExternalName would send what carries this server's certificate to
// programs that trust their host.
func Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return dialer.DialContext(ctx, network, address)
}

// refuseOwn is a net.Dialer.Control: it sees the address behind every name.
func refuseOwn(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %q: %w", address, err)
	}
	if ip := at.Addr().Unmap(); ip.IsLoopback() || ip.IsUnspecified() || ip.IsLinkLocalUnicast() || ip.IsMulticast() {
		return fmt.Errorf("no aggregated API server is asked at %s: it is an address of this host alone", ip)
	}
	return nil
}
