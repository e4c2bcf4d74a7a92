package commands

import (
	"os"
	"testing"

	"github.com/quorate/quorate/test/harness/cluster"
)

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }
