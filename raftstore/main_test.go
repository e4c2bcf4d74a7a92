package raftstore

import (
	"os"
	"testing"

	"github.com/quorate/quorate/internal/memdir"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashWorkDir); dir != "" {
		crashWork(dir)
		os.Exit(0)
	}
	os.Exit(memdir.Main(m))
}
