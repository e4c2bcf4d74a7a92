//go:build linux

package nodes

import (
	"os"
	"testing"

	"github.com/quorate/quorate/test/cluster"
)

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "":
		if why := cannot(); why != "" {
			skipped = why
			os.Exit(m.Run())
		}
		os.Exit(outside())
	case roleKeeper:
		os.Exit(keep())
	case roleInit:
		os.Exit(initProcess())
	}
	os.Exit(cluster.Main(m))
}

// skipped is why this machine, or this run, has no nodes.
var skipped string
