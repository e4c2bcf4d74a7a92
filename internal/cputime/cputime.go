// Package cputime measures the processor's time of benchmarks and of functions: the clock also
// counts what else runs. Only tests use it.
package cputime

import (
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Of returns the processor's time that f takes on its own goroutine.
func Of(f func()) time.Duration {
	now := func() time.Duration {
		var u unix.Rusage
		_ = unix.Getrusage(unix.RUSAGE_THREAD, &u)
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := now()
	f()
	return now() - began
}

// PerOp has the benchmark report the processor's time per operation, from now on, and its
// allocations.
func PerOp(b *testing.B) {
	b.Helper()
	b.ReportAllocs()
	var before, after syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	b.Cleanup(func() {
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
		used := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
		b.ReportMetric(float64(used)/float64(b.N), "cpu-ns/op")
	})
}
