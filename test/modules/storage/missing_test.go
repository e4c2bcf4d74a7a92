package storage

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	storagetesting "k8s.io/apiserver/pkg/storage/testing"
	"k8s.io/apiserver/pkg/storage/value"
)

// missing is what does not pass, because it does not apply or not yet. README.md
// has the reasons.
var missing = []function{
	{name: "RunTestCreateWithTTL", run: plain(storagetesting.RunTestCreateWithTTL)},
	{name: "RunTestGuaranteedUpdateWithTTL", run: plain(storagetesting.RunTestGuaranteedUpdateWithTTL)},
	{name: "RunTestTransformationFailure", run: transformed(storagetesting.RunTestTransformationFailure)},
	{name: "RunTestKeySchema", run: plain(storagetesting.RunTestKeySchema)},
	{name: "RunTestWatchError", run: transformed(storagetesting.RunTestWatchError)},
	{name: "RunTestWatchWithUnsafeDelete", run: func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunTestWatchWithUnsafeDelete(ctx, t, a)
	}},
	{name: "RunWatchErrorIsBlockingFurtherEvents", run: transformed(storagetesting.RunWatchErrorIsBlockingFurtherEvents)},
}

// inside is set in the process that runs what is expected to fail.
const inside = "QUORATE_SUITE_MISSING"

// TestMissing runs the functions that are listed as not passing in a process of
// their own, where they may fail. One that passes must be listed as such.
func TestMissing(t *testing.T) {
	if os.Getenv(inside) != "" {
		runMissing(t)
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// Some wait for events that never come. What would pass takes a second or two.
	run := exec.CommandContext(t.Context(), self, "-test.run=^TestMissing$", "-test.v", "-test.parallel=16", "-test.timeout=10s")
	run.Env = append(os.Environ(), inside+"=1")
	out, err := run.CombinedOutput()
	if failed := (*exec.ExitError)(nil); !errors.As(err, &failed) {
		t.Fatalf("nothing failed: %v\n%s", err, out)
	}
	for _, f := range missing {
		if !strings.Contains(string(out), "=== CONT  TestMissing/"+f.name+"\n") {
			t.Errorf("%s did not run:\n%s", f.name, out)
		}
		if strings.Contains(string(out), "passed: "+f.name+"\n") {
			t.Errorf("%s passes: move it to the suite, and say so in README.md", f.name)
		}
	}
}

func runMissing(t *testing.T) {
	c := start(t, resources(len(missing), 0))
	for _, f := range missing {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			f.run(t.Context(), t, newAdapter(t, c, c.nodes, c.nodes, true))
			if !t.Failed() && !t.Skipped() {
				// At once: the process may not live to report it.
				os.Stdout.WriteString("passed: " + f.name + "\n")
			}
		})
	}
}

// CorruptTransformer implements storagetesting.InterfaceWithCorruptTransformer.
func (a *adapter) CorruptTransformer() func() {
	old := *a.transformer.Load()
	a.transform(corrupt{old})
	return func() { a.transform(old) }
}

type corrupt struct{ value.Transformer }

func (corrupt) TransformFromStorage(context.Context, []byte, value.Context) ([]byte, bool, error) {
	return nil, true, errors.New("bits flipped")
}
