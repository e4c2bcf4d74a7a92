package validation

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

// BenchmarkCreate and BenchmarkUpdate are what the validation of a write costs: of the samples,
// with metadata as large as theirs.
func BenchmarkCreate(b *testing.B) {
	all := samples(b)
	for _, name := range benchmarked {
		b.Run(name, func(b *testing.B) {
			s, rules := all[name], Of(name)
			b.ReportAllocs()
			for b.Loop() {
				rules.Create(s.obj, s.res.Namespaced)
			}
		})
	}
}

func BenchmarkUpdate(b *testing.B) {
	all := samples(b)
	for _, name := range benchmarked {
		b.Run(name, func(b *testing.B) {
			s, rules := all[name], Of(name)
			old := runtime.DeepCopyJSON(s.obj)
			b.ReportAllocs()
			for b.Loop() {
				rules.Update("", s.obj, old, s.res.Namespaced)
			}
		})
	}
}

var benchmarked = []string{"configmaps", "pods", "deployments.apps", "leases.coordination.k8s.io", "nodes"}
