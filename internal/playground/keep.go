package playground

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// KeepCommand is the subcommand of 'quorate dev' that keeps a program running: KEEP KUBECONFIG PROGRAM
// ARGUMENT... The kubeconfig is how the process is found.
const KeepCommand = "keep"

// Pauses before a program that has ended is started again: each is twice the one before, until it has run
// for a while.
const (
	firstPause = time.Second
	lastPause  = 15 * time.Second
	ranLong    = time.Minute
)

// Keep runs a program, and starts it again whenever it ends, until ctx does. Then it ends the program.
// Both write to out.
func Keep(ctx context.Context, program string, args []string, out io.Writer) error {
	// The kernel ends the program when the thread that has started it is gone, not the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pause := firstPause
	for {
		began := time.Now()
		err := runOnce(ctx, program, args, out)
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(began) > ranLong {
			pause = firstPause
		}
		why := "exit status 0"
		if err != nil {
			why = err.Error()
		}
		fmt.Fprintf(out, "time=%s level=WARN msg=%q\n", time.Now().Format(lineLayout),
			fmt.Sprintf("%s has ended (%s), and is started again in %s", filepath.Base(program), why, pause))
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		pause = min(2*pause, lastPause)
	}
}

func runOnce(ctx context.Context, program string, args []string, out io.Writer) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	dieWithParent(cmd.SysProcAttr)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopWithin / 2 // then it is killed
	return cmd.Run()
}
