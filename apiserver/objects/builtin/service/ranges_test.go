package service

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

func TestParseBlocks(t *testing.T) {
	for in, want := range map[string]string{
		"10.0.0.0/24":                 "[10.0.0.0/24] 10.0.0.1",
		" 10.96.0.0/16, fd00::/108":   "[10.96.0.0/16 fd00::/108] 10.96.0.1",
		"fd00::/108,10.96.0.0/16":     "[fd00::/108 10.96.0.0/16] fd00::1",
		"10.0.0.0/29":                 "[10.0.0.0/29] 10.0.0.1",
		"":                            `service addresses: "" is no block of addresses, such as 10.0.0.0/16`,
		"10.0.0.0":                    `"10.0.0.0" is no block of addresses`,
		"10.0.0.0/24,10.0.0.0/33":     `"10.0.0.0/33" is no block of addresses`,
		"10.0.0.1/24":                 "is not the beginning of its block, which is 10.0.0.0/24",
		"10.0.0.0/30":                 "has fewer than 8 addresses",
		"10.0.0.0/24,10.1.0.0/24":     "at most one block of each family",
		"10.0.0.0/24,fd00::/108,::/1": "at most one block of each family",
	} {
		blocks, err := ParseBlocks(in)
		got := fmt.Sprint(blocks, " ", FirstAddress(blocks))
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
	if a := FirstAddress(nil); a.IsValid() {
		t.Errorf("the first address of nothing is %s", a)
	}
}

func TestUsable(t *testing.T) {
	for in, want := range map[string]bool{
		"10.0.0.0/24 10.0.0.0":   false, // the block itself
		"10.0.0.0/24 10.0.0.1":   true,
		"10.0.0.0/24 10.0.0.254": true,
		"10.0.0.0/24 10.0.0.255": false, // broadcast
		"10.0.0.0/24 10.0.1.1":   false,
		"fd00::/120 fd00::":      false,
		"fd00::/120 fd00::ff":    true, // IPv6 has no broadcast
		"fd00::/120 fd00::100":   false,
	} {
		block, addr, _ := strings.Cut(in, " ")
		if got := Usable(netip.MustParsePrefix(block), netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: %v", in, got)
		}
	}
}

// TestOffsets: what is handed out is usable, from the first offset to the last.
func TestOffsets(t *testing.T) {
	for _, s := range []string{"10.0.0.0/29", "10.0.0.0/24", "fd00::/120", "fd00::/64"} {
		p := netip.MustParsePrefix(s)
		n := usable(p)
		for _, offset := range []uint64{1, 2, n / 2, n - 1, n} {
			if a := at(p, offset); !Usable(p, a) {
				t.Errorf("%s: offset %d of %d is %s, which is not usable", s, offset, n, a)
			}
		}
		if beyond := at(p, n+1); p.Bits() > 64 && Usable(p, beyond) {
			t.Errorf("%s has %d addresses, and %s is usable, too", s, n, beyond)
		}
	}
}
