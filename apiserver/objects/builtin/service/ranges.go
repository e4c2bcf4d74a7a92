package service

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"
)

// PortRange is a range of ports, both ends included.
type PortRange struct{ First, Last int32 }

// DefaultPorts is where node ports come from if nothing else is said.
var DefaultPorts = PortRange{30000, 32767}

// ParsePortRange reads "30000-32767".
func ParsePortRange(s string) (PortRange, error) {
	first, last, ok := strings.Cut(s, "-")
	a, errA := strconv.ParseUint(first, 10, 16)
	b, errB := strconv.ParseUint(last, 10, 16)
	if !ok || errA != nil || errB != nil || a == 0 || a > b {
		return PortRange{}, fmt.Errorf("%q is no range of ports such as %s", s, DefaultPorts)
	}
	return PortRange{int32(a), int32(b)}, nil
}

func (r PortRange) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

// Contains reports whether a port is in the range.
func (r PortRange) Contains(port int32) bool { return port >= r.First && port <= r.Last }

// maxBits is the largest block of addresses that is handed out from, as the
// number of bits that vary: enough for any cluster, and a number of addresses
// that can be counted.
const maxBits = 20

// ParseBlocks reads one block of addresses of a family, or one of each, separated
// by a comma: "10.0.0.0/24", "10.0.0.0/16,fd00::/108".
func ParseBlocks(s string) ([]netip.Prefix, error) {
	var blocks []netip.Prefix
	for part := range strings.SplitSeq(s, ",") {
		p, err := netip.ParsePrefix(strings.TrimSpace(part))
		switch {
		case err != nil:
			return nil, fmt.Errorf("service addresses: %q is no block of addresses, such as 10.0.0.0/16", part)
		case p.Masked() != p:
			return nil, fmt.Errorf("service addresses: %s is not the beginning of its block, which is %s", p.Addr(), p.Masked())
		case p.Addr().BitLen()-p.Bits() < 3:
			return nil, fmt.Errorf("service addresses: %s has fewer than 8 addresses", p)
		case len(blocks) == 2 || len(blocks) == 1 && blocks[0].Addr().Is4() == p.Addr().Is4():
			return nil, fmt.Errorf("service addresses: at most one block of each family, not %s", s)
		}
		blocks = append(blocks, p)
	}
	return blocks, nil
}

// FirstAddress is the first address that Services can have, of the first block. The
// Service that leads to the API has it.
func FirstAddress(blocks []netip.Prefix) netip.Addr {
	if len(blocks) == 0 {
		return netip.Addr{}
	}
	return blocks[0].Addr().Next()
}

// usable is how many addresses of a block are handed out: neither the first one,
// nor, for IPv4, the broadcast address. They begin at offset 1.
func usable(p netip.Prefix) uint64 {
	bits := p.Addr().BitLen() - p.Bits()
	if bits > maxBits {
		bits = maxBits
	}
	n := uint64(1)<<bits - 1
	if p.Addr().Is4() && n > 0 && bits == 32-p.Bits() {
		n--
	}
	return n
}

// Usable reports whether an address of a block may be handed out.
func Usable(p netip.Prefix, a netip.Addr) bool {
	if !p.Contains(a) || a == p.Masked().Addr() {
		return false
	}
	return !a.Is4() || a != lastOf(p)
}

func lastOf(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().As4()
	n := binary.BigEndian.Uint32(b[:]) | uint32(uint64(1)<<(32-p.Bits())-1)
	binary.BigEndian.PutUint32(b[:], n)
	return netip.AddrFrom4(b)
}

// at is the address at an offset from the beginning of a block.
func at(p netip.Prefix, offset uint64) netip.Addr {
	a := p.Masked().Addr()
	if a.Is4() {
		b := a.As4()
		binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(offset))
		return netip.AddrFrom4(b)
	}
	b := a.As16()
	// maxBits keeps the sum within the lower half.
	binary.BigEndian.PutUint64(b[8:], binary.BigEndian.Uint64(b[8:])+offset)
	return netip.AddrFrom16(b)
}

// Bounds of the lower part of a block, which is left to those who choose an
// address themselves for as long as there are others.
const (
	minLower = 16
	maxLower = 256
)

// lower is how many addresses at the beginning are handed out last.
func lower(n uint64) uint64 {
	if n < minLower {
		return 0
	}
	return min(max(n/16, minLower), maxLower)
}

// Pick finds a free address of a block: first from a random place on in the upper
// part, then in the lower one. ok is false if there is none.
func Pick(p netip.Prefix, taken func(netip.Addr) bool) (a netip.Addr, ok bool) {
	n := usable(p)
	low := lower(n)
	if a, ok := scan(p, low, n, taken); ok {
		return a, true
	}
	return scan(p, 0, low, taken)
}

// scan looks at the addresses from first to last (not included), counted from
// the first that is usable, in a circle from a random one on.
func scan(p netip.Prefix, first, last uint64, taken func(netip.Addr) bool) (netip.Addr, bool) {
	if last <= first {
		return netip.Addr{}, false
	}
	size := last - first
	start := rand.Uint64N(size)
	for i := range size {
		if a := at(p, 1+first+(start+i)%size); !taken(a) {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// PickPort is Pick for ports.
func (r PortRange) PickPort(taken func(int32) bool) (int32, bool) {
	n := uint64(r.Last-r.First) + 1
	low := lower(n)
	for _, part := range [...][2]uint64{{low, n}, {0, low}} {
		if part[1] == part[0] {
			continue
		}
		size := part[1] - part[0]
		start := rand.Uint64N(size)
		for i := range size {
			if port := r.First + int32(part[0]+(start+i)%size); !taken(port) {
				return port, true
			}
		}
	}
	return 0, false
}
