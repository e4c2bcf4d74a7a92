//go:build linux

package hosts

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/quorate/quorate/test/harness/cluster"
	"github.com/quorate/quorate/test/harness/isolated"
)

func TestMain(m *testing.M) {
	os.Exit(isolated.Run{Name: "hosts", Cannot: cannot, Tests: cluster.Main}.Main(m))
}

// cannot says why there can be no hosts here, or nothing.
func cannot() string {
	if _, err := os.Stat(systemd); err != nil {
		return fmt.Sprintf("needs systemd: %v", err)
	}
	for _, program := range []string{"unshare", "nsenter", "pivot_root", "setpriv"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Sprintf("needs util-linux: %v", err)
		}
	}
	return ""
}

const systemd = "/lib/systemd/systemd"
