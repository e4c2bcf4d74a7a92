package playground

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/quorate/quorate/internal/must"
)

// TestMakeDirectoryTogether: a directory that another command makes a playground of at the same time is
// one, and not somebody's.
func TestMakeDirectoryTogether(t *testing.T) {
	for range 300 {
		dir := filepath.Join(t.TempDir(), "d")
		o := optionsIn(dir)
		if _, err := makeDirectory(dir, o); err != nil {
			t.Fatal(err)
		}
		c, err := planCluster(o)
		must.OK(t, err)
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := c.write(); err != nil {
				t.Error(err)
			}
		})
		for there := false; !there; {
			_, err := os.Stat(clusterFile(dir))
			there = err == nil
			if _, err := makeDirectory(dir, o); err != nil {
				t.Error(err)
			}
		}
		wg.Wait()
	}
}
