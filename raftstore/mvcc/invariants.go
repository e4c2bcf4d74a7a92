package mvcc

import (
	"flag"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
)

// Invariants reports whether the goroutine that applies entries calls CheckSome after each batch. It
// is true in test binaries and false in the product. A build tag would do the same, but every package
// above this one would be compiled once with it and once without. Benchmarks measure the product, so
// it is false in a run with -bench; so it is in tests of other projects, which start whole servers.
// Callers may ask at any time after flags are parsed.
var Invariants = sync.OnceValue(func() bool {
	var module string
	if info, ok := debug.ReadBuildInfo(); ok {
		module = info.Main.Path
	}
	return invariants(testing.Testing(), module, flag.Lookup("test.bench"))
})

// invariants is Invariants of a binary: whether it is a test's, its module, and its flag -bench, if there is one.
func invariants(test bool, module string, bench *flag.Flag) bool {
	return test && strings.HasPrefix(module, "github.com/quorate/quorate") && (bench == nil || bench.Value.String() == "")
}
