package writes

import (
	"flag"
	"io"
	"testing"

	"k8s.io/klog/v2"
)

// TestMain runs the tests without the log of upstream's functions, which say there what they find, too.
func TestMain(m *testing.M) {
	logging := flag.NewFlagSet("", flag.PanicOnError)
	klog.InitFlags(logging)
	for name, value := range map[string]string{"logtostderr": "false", "stderrthreshold": "FATAL"} {
		if err := logging.Set(name, value); err != nil {
			panic(err)
		}
	}
	klog.SetOutput(io.Discard)
	m.Run()
}
