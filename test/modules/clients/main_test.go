package clients

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/go-logr/logr"
	"github.com/quorate/quorate/test/harness/cluster"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// TestMain silences what clients log about nodes that go away, unless KLOG is
// set, which is the verbosity.
func TestMain(m *testing.M) {
	if v := os.Getenv("KLOG"); v != "" {
		flags := flag.NewFlagSet("klog", flag.ExitOnError)
		klog.InitFlags(flags)
		_ = flags.Set("v", v)
	} else {
		klog.SetLogger(logr.Discard())
	}
	log.SetLogger(klog.Background())
	if dir := os.Getenv(inPodVariable); dir != "" {
		fmt.Fprintln(os.Stderr, beOperator(dir))
		os.Exit(1)
	}
	if programs := os.Getenv(envtestVariable); programs != "" {
		fmt.Fprintln(os.Stderr, beKilled(programs))
		os.Exit(1)
	}
	os.Exit(cluster.Main(m))
}
