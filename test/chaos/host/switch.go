//go:build linux

package host

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Link is what happens to packets from one host to another.
type Link struct {
	Cut       bool
	NoDial    bool          // TCP connections are not opened this way; those that are open go on
	Loss      float64       // share of packets that are lost
	Duplicate float64       // share that arrive twice
	Reorder   float64       // share that wait ReorderBy longer than the others
	Delay     time.Duration // of every packet
	Jitter    time.Duration // the delay is Delay ± up to this
}

// reorderBy is how late a reordered packet is.
const reorderBy = 5 * time.Millisecond

// inFlight bounds the packets that wait on one link, as a router's queue would.
const inFlight = 4096

// Counts is what a Switch has done to packets.
type Counts struct{ Forwarded, Cut, Lost, Duplicated, Reordered, Delayed, Overflown uint64 }

// Switch carries packets between hosts. Packets to addresses that it does not
// know are dropped.
type Switch struct {
	mu    sync.RWMutex
	ports map[netip.Addr]*port
	links map[[2]netip.Addr]*link
	wg    sync.WaitGroup

	forwarded, cut, lost, duplicated, reordered, delayed, overflown atomic.Uint64
}

type port struct {
	addr netip.Addr
	end  *os.File
}

type link struct {
	fault   atomic.Pointer[Link]
	waiting atomic.Int64
}

// NewSwitch makes a switch without hosts.
func NewSwitch() *Switch {
	return &Switch{ports: map[netip.Addr]*port{}, links: map[[2]netip.Addr]*link{}}
}

// Plug gives a host a device with an address and connects it. The addresses of
// one switch are in one /24.
func (s *Switch) Plug(h *Host, addr netip.Addr) error {
	end, err := h.tun(addr)
	if err != nil {
		return fmt.Errorf("plug in %s: %w", addr, err)
	}
	p := &port{addr, end}
	s.mu.Lock()
	s.ports[addr] = p
	s.mu.Unlock()
	s.wg.Go(func() { s.serve(p) })
	return nil
}

// Set sets what happens to packets from one address to another.
func (s *Switch) Set(from, to netip.Addr, fault Link) { s.link(from, to).fault.Store(&fault) }

// Heal makes all links whole.
func (s *Switch) Heal() {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, l := range s.links {
		l.fault.Store(&Link{})
	}
}

// Counts returns what was done so far.
func (s *Switch) Counts() Counts {
	return Counts{s.forwarded.Load(), s.cut.Load(), s.lost.Load(), s.duplicated.Load(), s.reordered.Load(), s.delayed.Load(), s.overflown.Load()}
}

// Close unplugs all hosts.
func (s *Switch) Close() error {
	var errs []error
	s.mu.RLock()
	for _, p := range s.ports {
		errs = append(errs, p.end.Close())
	}
	s.mu.RUnlock()
	s.wg.Wait()
	return errors.Join(errs...)
}

func (s *Switch) link(from, to netip.Addr) *link {
	key := [2]netip.Addr{from, to}
	s.mu.RLock()
	l := s.links[key]
	s.mu.RUnlock()
	if l != nil {
		return l
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l = s.links[key]; l == nil {
		l = &link{}
		l.fault.Store(&Link{})
		s.links[key] = l
	}
	return l
}

// serve takes what one host sends, until its end is closed.
func (s *Switch) serve(from *port) {
	buf := make([]byte, mtu+100)
	for {
		n, err := from.end.Read(buf)
		if err != nil {
			return
		}
		// IPv4 only: the kernel's own IPv6 chatter is not for us.
		if n < 20 || buf[0]>>4 != 4 {
			continue
		}
		to := netip.AddrFrom4([4]byte(buf[16:20]))
		s.mu.RLock()
		p := s.ports[to]
		s.mu.RUnlock()
		if p != nil {
			s.carry(s.link(from.addr, to), p, buf[:n])
		}
	}
}

// opens reports whether an IPv4 packet is the first of a TCP connection: SYN without
// ACK, which is what a firewall drops silently.
func opens(packet []byte) bool {
	const tcp, flags, syn, ack = 6, 13, 0x02, 0x10
	header := int(packet[0]&0x0f) * 4
	return packet[9] == tcp && len(packet) > header+flags && packet[header+flags]&(syn|ack) == syn
}

// carry forwards one packet as the link's fault wants it. The packet is the
// caller's again afterwards.
func (s *Switch) carry(l *link, to *port, packet []byte) {
	f := l.fault.Load()
	if f.Cut || f.NoDial && opens(packet) {
		s.cut.Add(1)
		return
	}
	if f.Loss > 0 && rand.Float64() < f.Loss {
		s.lost.Add(1)
		return
	}
	times := 1
	if f.Duplicate > 0 && rand.Float64() < f.Duplicate {
		s.duplicated.Add(1)
		times = 2
	}
	for range times {
		wait := f.Delay
		if f.Jitter > 0 {
			wait += time.Duration(rand.Int64N(int64(2*f.Jitter))) - f.Jitter
		}
		if wait > 0 {
			s.delayed.Add(1)
		}
		if f.Reorder > 0 && rand.Float64() < f.Reorder {
			s.reordered.Add(1)
			wait += reorderBy
		}
		s.forwarded.Add(1)
		if wait <= 0 {
			_, _ = to.end.Write(packet) // a full device drops it, as a wire would
			continue
		}
		if l.waiting.Add(1) > inFlight {
			l.waiting.Add(-1)
			s.overflown.Add(1)
			continue
		}
		copied := append([]byte(nil), packet...)
		time.AfterFunc(wait, func() {
			defer l.waiting.Add(-1)
			// What was on its way when the link was cut does not arrive any more.
			if !l.fault.Load().Cut {
				_, _ = to.end.Write(copied)
			}
		})
	}
}
