package relay

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Check says why callers cannot be told apart on this machine.
func Check() error {
	if _, err := os.Stat(connectionTable); err != nil {
		return fmt.Errorf("whose a connection is cannot be seen on this system: %w", err)
	}
	return nil
}

// connectionTable has a line for each socket of TCP over IPv4.
const connectionTable = "/proc/net/tcp"

// noProcess is the socket that the kernel goes on with after its process has closed it.
const noProcess = "socket:[0]"

// otherEnd is how /proc/PID/fd names the socket at the other end of a connection on loopback, or
// empty if the table does not have it.
func otherEnd(conn net.Conn) (socket string, err error) {
	ours, err1 := netip.ParseAddrPort(conn.LocalAddr().String())
	theirs, err2 := netip.ParseAddrPort(conn.RemoteAddr().String())
	f, err3 := os.Open(connectionTable)
	if err := errors.Join(err1, err2, err3); err != nil {
		return "", err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for socket == "" && lines.Scan() {
		socket = socketOf(lines.Text(), theirs, ours)
	}
	return socket, lines.Err()
}

// ownerOf is whose process has a socket.
func ownerOf(socket string, pids map[string]int) (string, bool) {
	for node, pid := range pids {
		// The directory changes while it is read; what is not there was not the one.
		dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if link, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil && link == socket {
				return node, true
			}
		}
	}
	return "", false
}

// socketOf is how /proc/PID/fd names the socket of a line of connectionTable, if it is the one
// that is connected from one address to another.
func socketOf(line string, from, to netip.AddrPort) string {
	// sl, local address:port in hex, remote, state, queues, timer, retransmissions, uid, timeout, inode
	fields := strings.Fields(line)
	if len(fields) < 10 || fields[1] != inHex(from) || fields[2] != inHex(to) {
		return ""
	}
	return "socket:[" + fields[9] + "]"
}

// inHex is an address as the kernel prints it: of the four bytes the number that they are on this
// machine, of the port the number.
func inHex(a netip.AddrPort) string {
	b := a.Addr().Unmap().As4()
	return fmt.Sprintf("%02X%02X%02X%02X:%04X", b[3], b[2], b[1], b[0], a.Port())
}
