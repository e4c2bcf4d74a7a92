//go:build linux

package host

import (
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// mtu keeps the number of packets, each two system calls, small, and still gives
// a lossy link many packets to choose from.
const mtu = 8000

// tun makes the network device of a host, with an address in a /24, and returns
// the other end: it reads what the host sends and writes what it receives.
func (h *Host) tun(addr netip.Addr) (end *os.File, err error) {
	err = h.Do(func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return fmt.Errorf("open /dev/net/tun: %w", err)
		}
		defer func() {
			if end == nil {
				_ = unix.Close(fd)
			}
		}()
		ifr, err := unix.NewIfreq("net0")
		if err != nil {
			return err
		}
		ifr.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr); err != nil {
			return fmt.Errorf("make a tun device: %w", err)
		}
		if err := configure("net0", addr); err != nil {
			return err
		}
		end = os.NewFile(uintptr(fd), "tun of "+addr.String())
		return nil
	})
	return end, err
}

func configure(device string, addr netip.Addr) error {
	return withSocket(func(s int) error {
		for _, set := range []struct {
			what    string
			request uint
			fill    func(*unix.Ifreq) error
		}{
			{"address", unix.SIOCSIFADDR, func(r *unix.Ifreq) error { return r.SetInet4Addr(addr.AsSlice()) }},
			{"netmask", unix.SIOCSIFNETMASK, func(r *unix.Ifreq) error { return r.SetInet4Addr([]byte{255, 255, 255, 0}) }},
			{"mtu", unix.SIOCSIFMTU, func(r *unix.Ifreq) error { r.SetUint32(mtu); return nil }},
			{"flags", unix.SIOCSIFFLAGS, func(r *unix.Ifreq) error { r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING); return nil }},
		} {
			r, err := unix.NewIfreq(device)
			if err != nil {
				return err
			}
			if err := set.fill(r); err != nil {
				return err
			}
			if err := unix.IoctlIfreq(s, set.request, r); err != nil {
				return fmt.Errorf("set the %s of %s: %w", set.what, device, err)
			}
		}
		return nil
	})
}

// up switches a device on.
func up(device string) error {
	return withSocket(func(s int) error {
		r, err := unix.NewIfreq(device)
		if err != nil {
			return err
		}
		r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
		return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, r)
	})
}

func withSocket(f func(fd int) error) error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	defer unix.Close(s)
	return f(s)
}
