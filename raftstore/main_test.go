package raftstore

import (
	"os"
	"testing"

	"github.com/quorate/quorate/internal/memdir"
)

// childWork is what processes do that tests start, by the variable that names their directory.
var childWork = map[string]func(dir string){crashWorkDir: crashWork}

func TestMain(m *testing.M) {
	for variable, work := range childWork {
		if dir := os.Getenv(variable); dir != "" {
			work(dir)
			os.Exit(0)
		}
	}
	os.Exit(memdir.Main(m))
}
