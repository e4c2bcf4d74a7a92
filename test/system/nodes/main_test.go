//go:build linux

package nodes

import (
	"fmt"
	"os"
	"testing"

	"github.com/quorate/quorate/test/harness/cluster"
	"github.com/quorate/quorate/test/harness/isolated"
)

// enableVariable names the directory with the programs; `make nodes` sets it.
const enableVariable = "QUORATE_NODES_BIN"

func TestMain(m *testing.M) {
	os.Exit(isolated.Run{Name: "nodes", Cannot: cannot, Tests: cluster.Main}.Main(m))
}

// cannot says why there can be no nodes here, or nothing.
func cannot() string {
	if os.Getenv(enableVariable) == "" {
		return "needs the programs that 'make nodes' builds and fetches"
	}
	if _, err := os.Stat("/dev/kmsg"); err != nil {
		return fmt.Sprintf("kubelet reads the kernel's log: %v", err)
	}
	return ""
}
