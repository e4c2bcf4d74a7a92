// Package hostport checks addresses that people have typed.
package hostport

import (
	"fmt"
	"net"
	"strconv"
)

// Check checks host:port; others must be able to dial an advertised one.
func Check(addr string, advertised bool) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("%q: must be host:port", addr)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return fmt.Errorf("%s: the port must be a number from 0 to 65535", addr)
	}
	ip := net.ParseIP(host)
	if advertised && (host == "" || n == 0 || ip != nil && ip.IsUnspecified()) {
		return fmt.Errorf("%s cannot be reached by others: a host and a port are needed", addr)
	}
	return nil
}
