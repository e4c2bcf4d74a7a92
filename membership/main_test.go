package membership

import (
	"os"
	"testing"

	"github.com/quorate/quorate/internal/memdir"
)

func TestMain(m *testing.M) { os.Exit(memdir.Main(m)) }
