// Command quorate is a Kubernetes-API-compatible API server whose storage is
// its own Raft log: one binary for nodes, for a playground cluster and for
// operating them. Package main only reads flags, prints text and exits; package
// node is what a node does.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/quorate/quorate/membership"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	c := newCommand()
	if sub, ok := calledAs[filepath.Base(os.Args[0])]; ok {
		c.SetArgs(append([]string{sub}, os.Args[1:]...))
	}
	// The first signal begins an orderly end; a second one ends the process.
	context.AfterFunc(ctx, stop)
	err := c.ExecuteContext(ctx)
	stop()
	if err == nil {
		return
	}
	var exit exitError
	if errors.As(err, &exit) {
		if exit.text != "" {
			fmt.Fprintln(os.Stderr, exit.text)
		}
		os.Exit(exit.code)
	}
	fmt.Fprintln(os.Stderr, "error:", err)
	if errors.Is(err, membership.ErrNoQuorum) {
		os.Exit(exitNoQuorum)
	}
	os.Exit(1)
}

// exitError ends the process with a code of its own.
type exitError struct {
	code int
	text string
}

func (e exitError) Error() string { return e.text }
