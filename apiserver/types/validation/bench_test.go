package validation

import (
	"testing"

	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/internal/cputime"
	"k8s.io/apimachinery/pkg/runtime"
)

// BenchmarkCreate and BenchmarkUpdate are what the validation of a write costs: of the samples,
// with metadata as large as theirs.
func BenchmarkCreate(b *testing.B) {
	all := samples(b)
	for _, name := range benchmarked {
		b.Run(name, func(b *testing.B) {
			s, rules := all[name], Of(name)
			cputime.PerOp(b)
			for b.Loop() {
				if errs := rules.Create(s.obj, s.res.Namespaced, nil); len(errs) > 0 {
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
			cputime.PerOp(b)
			for b.Loop() {
				if errs := rules.Update("", s.obj, old, s.res.Namespaced, nil); len(errs) > 0 {
					b.Fatal(errs)
				}
			}
		})
	}
}

var benchmarked = []string{"configmaps", "pods", "deployments.apps", "leases.coordination.k8s.io", "nodes"}
