package joining

import (
	"fmt"
	"os"
	"testing"

	"github.com/quorate/quorate/test/harness/cluster"
)

func TestMain(m *testing.M) {
	if name := os.Getenv(stubKubelet); name != "" {
		if err := playKubelet(name); err != nil {
			fmt.Println("the stub of kubelet:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(cluster.Main(m))
}
