package cluster

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// Ports of clusters lie below the range from which the kernel takes ports for connections, and
// below 20000 to 32000, where `quorate bench` looks for free ones: it would take those of a node
// that is down. They are handed out in blocks.
const (
	firstPort, lastPort = 11000, 18900
	portBlock           = 10
	// peerPorts is how much higher a node's peer port is than its API port.
	peerPorts = 1000
)

// ownPorts are the listeners that hold this process' blocks until its end.
var ownPorts struct {
	sync.Mutex
	listeners []net.Listener
}

// FreePorts returns p such that p to p+n-1, and the ports 1000 higher, are free, and
// are handed out to no other test of this process or of others until this process
// ends: a port is not taken while the node that has it is down.
func FreePorts(n int) (int, error) {
	blocks := (n + portBlock - 1) / portBlock
	for range 200 {
		p := firstPort + portBlock*rand.IntN((lastPort-firstPort)/portBlock)
		held, ok := holdPorts(p, blocks)
		if !ok {
			continue
		}
		if !free(p, n) || !free(p+peerPorts, n) {
			release(held)
			continue
		}
		ownPorts.Lock()
		defer ownPorts.Unlock()
		ownPorts.listeners = append(ownPorts.listeners, held...)
		return p, nil
	}
	return 0, fmt.Errorf("no %d free ports found", n)
}

// holdPorts takes blocks from a port on, and those 1000 higher. Who has a block has the
// abstract socket with its name: that ends with the process, however it ends, and
// leaves no file behind.
func holdPorts(port, blocks int) (held []net.Listener, ok bool) {
	for i := range blocks {
		for _, first := range []int{port + i*portBlock, port + peerPorts + i*portBlock} {
			l, err := net.Listen("unix", fmt.Sprintf("@quorate-test-ports-%d", first))
			if err != nil {
				release(held)
				return nil, false
			}
			held = append(held, l)
		}
	}
	return held, true
}

func release(held []net.Listener) {
	for _, l := range held {
		l.Close()
	}
}

func free(port, n int) bool {
	for i := range n {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+i))
		if err != nil {
			return false
		}
		l.Close()
	}
	return true
}
