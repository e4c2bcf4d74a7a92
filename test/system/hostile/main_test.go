package hostile

import (
	"os"
	"testing"

	"github.com/quorate/quorate/test/harness/cluster"
)

func TestMain(m *testing.M) {
	if what := os.Getenv(silentVariable); what != "" {
		os.Exit(beSilent(what))
	}
	os.Exit(cluster.Main(m))
}
