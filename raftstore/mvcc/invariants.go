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
	info, ok := debug.ReadBuildInfo()
	if !testing.Testing() || !ok || !strings.HasPrefix(info.Main.Path, "github.com/quorate/quorate") {
		return false
	}
	bench := flag.Lookup("test.bench")
	return bench == nil || bench.Value.String() == ""
})
