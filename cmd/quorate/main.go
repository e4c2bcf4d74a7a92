// Command quorate is a Kubernetes-API-compatible API server whose storage is its own Raft log: one
// program for nodes, for a playground cluster and for operating them.
package main

import (
	"os"

	"github.com/quorate/quorate/cmd/internal/commands"
)

// Set by the linker in builds from make.
var version, commit string

func main() { os.Exit(commands.Run(version, commit)) }
