package validation

import (
	"syscall"
	"testing"

	"github.com/quorate/quorate/apiserver/tree"
	"k8s.io/apimachinery/pkg/runtime"
)

// BenchmarkCreate and BenchmarkUpdate are what the validation of a write costs: of the samples,
// with metadata as large as theirs.
func BenchmarkCreate(b *testing.B) {
	all := samples(b)
	for _, name := range benchmarked {
		b.Run(name, func(b *testing.B) {
			s, rules := all[name], Of(name)
			cpuPerOp(b)
			for b.Loop() {
				if errs := rules.Create(s.obj, s.res.Namespaced); len(errs) > 0 {
					b.Fatal(errs)
				}
			}
		})
	}
}

func BenchmarkUpdate(b *testing.B) {
	all := samples(b)
	for _, name := range benchmarked {
		b.Run(name, func(b *testing.B) {
			s, rules := all[name], Of(name)
			tree.As(s.obj["metadata"])["resourceVersion"] = "7"
			old := runtime.DeepCopyJSON(s.obj)
			cpuPerOp(b)
			for b.Loop() {
				if errs := rules.Update("", s.obj, old, s.res.Namespaced); len(errs) > 0 {
					b.Fatal(errs)
				}
			}
		})
	}
}

// cpuPerOp reports the processor's time per operation: the clock also counts what else runs.
func cpuPerOp(b *testing.B) {
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

var benchmarked = []string{"configmaps", "pods", "deployments.apps", "leases.coordination.k8s.io", "nodes"}
