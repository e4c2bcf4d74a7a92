// Command quorate is a Kubernetes-API-compatible API server whose storage is
// its own Raft log: one binary for nodes, for a playground cluster and for
// operating them. Package main only reads flags, prints text and exits; package
// node is what a node does.
package main

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/quorate/quorate/internal/cli"
	"github.com/quorate/quorate/membership"
)

func main() {
	c := newCommand()
	if sub, ok := calledAs[filepath.Base(os.Args[0])]; ok {
		c.SetArgs(append([]string{sub}, os.Args[1:]...))
	}
	os.Exit(cli.Run(c, func(err error) int {
		if errors.Is(err, membership.ErrNoQuorum) {
			return exitNoQuorum
		}
		return 0
	}))
}
