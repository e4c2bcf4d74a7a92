package mvcc

import (
	"flag"
	"testing"
)

// TestInvariants: the tests of this module check the state machine after each batch; the product, benchmarks
// and tests of other projects do not.
func TestInvariants(t *testing.T) {
	if bench := flag.Lookup("test.bench").Value.String(); Invariants() != (bench == "") {
		t.Errorf("with -bench %q: %v", bench, Invariants())
	}
	const here = "github.com/quorate/quorate"
	bench := func(pattern string) *flag.Flag {
		flags := flag.NewFlagSet("", flag.ContinueOnError)
		flags.String("test.bench", pattern, "")
		return flags.Lookup("test.bench")
	}
	for _, c := range []struct {
		test   bool
		module string
		bench  *flag.Flag
		want   bool
	}{
		{true, here, bench(""), true},
		{true, here, nil, true},
		{true, here + "/test/modules/storage", bench(""), true},
		{true, here, bench("."), false},
		{true, "example.com/operator", bench(""), false},
		{true, "", bench(""), false},
		{false, here, nil, false},
		{false, here, bench(""), false},
	} {
		if got := invariants(c.test, c.module, c.bench); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
