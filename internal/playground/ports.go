package playground

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// checkPorts refuses to start nodes on ports that others have: the nodes themselves
// would only say so in their logs, and a cluster may form of the rest.
func (c *cluster) checkPorts(o Options, nodes ...*Node) error {
	var taken []string
	var first error
	for _, n := range nodes {
		for _, p := range []struct{ what, address string }{
			{n.Name + "'s API", strings.TrimPrefix(n.API, "https://")}, {n.Name + "'s peer port", n.Peer},
		} {
			l, err := net.Listen("tcp", p.address)
			if err == nil {
				l.Close()
				continue
			}
			_, port, splitErr := net.SplitHostPort(p.address)
			if splitErr != nil {
				return fmt.Errorf("%s: %w", p.what, splitErr)
			}
			switch {
			case errors.Is(err, syscall.EADDRINUSE):
				err = fmt.Errorf("port %s (%s) is taken%s", port, p.what, hasPort(port))
			case errors.Is(err, fs.ErrPermission):
				err = fmt.Errorf("port %s (%s): you may not listen there", port, p.what)
			default:
				err = fmt.Errorf("port %s (%s): %w", port, p.what, err)
			}
			taken = append(taken, port)
			if first == nil {
				first = err
			}
		}
	}
	if first == nil {
		return nil
	}
	if len(taken) > 1 {
		first = fmt.Errorf("%w, and %d more of the ports that it needs", first, len(taken)-1)
	}
	if c.formed() {
		return fmt.Errorf("%w; a playground keeps its ports: end what has them", first)
	}
	if free := freePortsAfter(o.APIPort, len(c.Nodes)); free != 0 {
		return fmt.Errorf("%w; others are free: --api-port %d", first, free)
	}
	return first
}

// freePortsAfter is an --api-port for n nodes that is free now, or 0.
func freePortsAfter(port, n int) int {
	const step, tries = 100, 50
	port = max(port, 6443) // below are those of known services, or of root
	for range tries {
		port += step
		if port+peerOffset+n <= 65535 && portsAreFree(port, n) && portsAreFree(port+peerOffset, n) {
			return port
		}
	}
	return 0
}

// hasPort says who listens on a port of this machine, as far as that can be seen.
func hasPort(port string) string {
	pid := listens(port)
	if pid == 0 {
		return ""
	}
	if file := nodeFile(arguments(pid)); file != "" {
		dir, name := filepath.Dir(file), strings.TrimSuffix(filepath.Base(file), ".yaml")
		if c, err := readCluster(dir); err == nil && c.node(name) != nil {
			return fmt.Sprintf(" by %s of the playground %s (to stop that: %s dev stop --data-dir %s)", name, rel(dir), self(), rel(dir))
		}
	}
	name, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "comm"))
	return fmt.Sprintf(" by process %d (%s)", pid, strings.TrimSpace(string(name)))
}

// listens is the process that listens on a port, or 0: it is another user's, or there
// is no /proc.
func listens(port string) int {
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return 0
	}
	sockets := map[string]bool{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, _ := os.ReadFile(table)
		for line := range strings.Lines(string(b)) {
			// sl, local address:port in hex, remote, state (0A: listens), ..., inode
			f := strings.Fields(line)
			if len(f) < 10 || f[3] != "0A" {
				continue
			}
			_, local, _ := strings.Cut(f[1], ":")
			if b, err := hex.DecodeString(local); err == nil && len(b) == 2 && uint64(b[0])<<8|uint64(b[1]) == number {
				sockets["socket:["+f[9]+"]"] = true
			}
		}
	}
	if len(sockets) == 0 {
		return 0
	}
	files, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, file := range files {
		if link, err := os.Readlink(file); err == nil && sockets[link] {
			pid, _ := strconv.Atoi(strings.Split(file, "/")[2])
			return pid
		}
	}
	return 0
}
