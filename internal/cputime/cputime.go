// Package cputime reports the processor's time of benchmarks: the clock also counts
// what else runs. Only tests use it.
package cputime

import (
	"syscall"
	"testing"
)

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
