//go:build linux

package isolated

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
)

const (
	bridge = "machines0"
	// BridgeIP is the address of the tests' own process on the network of machines, 10.99.0.0/24.
	BridgeIP = "10.99.0.1"
)

// tryDevices makes the two kinds of devices that machines and pods have, in a namespace that
// goes with the command.
func tryDevices() error {
	cmd := exec.Command("sh", "-c", "ip link add b0 type bridge && ip link add v0 type veth peer name v1 && ip link set v1 master b0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// MakeBridge makes the network between the machines: a bridge, on which this process has an address.
func MakeBridge() error {
	return Shell("ip", "link", "set", "lo", "up",
		"&&", "ip", "link", "add", bridge, "type", "bridge",
		"&&", "ip", "addr", "add", BridgeIP+"/24", "dev", bridge,
		"&&", "ip", "link", "set", bridge, "up",
		"&&", "sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
}

// Plug gives a machine a cable to the bridge. tid is a process or thread of the machine.
func Plug(name string, tid int) error {
	return Shell("ip", "link", "add", "veth-"+name, "type", "veth", "peer", "name", "eth0", "netns", fmt.Sprint(tid),
		"&&", "ip", "link", "set", "veth-"+name, "master", bridge,
		"&&", "ip", "link", "set", "veth-"+name, "up")
}

// Unplug takes the cable of a machine away that has ended. The kernel does that too, some time later.
func Unplug(name string) error {
	return Shell("ip", "link", "del", "veth-"+name, "2>/dev/null", "||", "!", "ip", "link", "show", "veth-"+name, "2>/dev/null")
}

// Configure is called in the network namespace of a machine that was plugged in: it gives it its address.
func Configure(ip string) error { return Shell(ConfigureLine(ip)) }

// ConfigureLine is Configure as a line of the shell's language.
func ConfigureLine(ip string) string {
	return "ip link set lo up && ip addr add " + ip + "/24 dev eth0 && ip link set eth0 up"
}

// Cable puts a machine's cable in ("up") or takes it out ("down"): nobody is told.
func Cable(name, state string) error { return Shell("ip", "link", "set", "veth-"+name, state) }

// Shell runs a line of the shell's language. The error has what it printed.
func Shell(words ...string) error {
	out, err := exec.Command("sh", "-c", strings.Join(words, " ")).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(words, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
