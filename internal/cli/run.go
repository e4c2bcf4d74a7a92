package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// ExitStopped is the exit code of a command that a signal ended, and that removed what it had started.
const ExitStopped = 130

// ExitError ends the process with an exit code other than 1, after Run printed Text on standard error.
type ExitError struct {
	Code int
	Text string
}

func (e ExitError) Error() string { return e.Text }

// Run executes a command line and returns the exit code of the process: that of an ExitError, that of
// codeOf if it is not zero, or 1. The first signal ends the command in order; a second one ends the
// process.
func Run(c *cobra.Command, codeOf func(error) int) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	err := c.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	var exit ExitError
	if errors.As(err, &exit) {
		if exit.Text != "" {
			fmt.Fprintln(os.Stderr, exit.Text)
		}
		return exit.Code
	}
	printError(err)
	if code := codeOf(err); code != 0 {
		return code
	}
	return 1
}
