package quotas

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/test/harness/cluster"
)

// TestPlanted: nodes whose state machines do not keep quotas are found out by what TestQuotaEdge
// looks at. The bugs are those of test/harness/planted.
func TestPlanted(t *testing.T) {
	program := cluster.PlantedProgram(t)
	t.Run("limit-exceeded", func(t *testing.T) {
		e := newEdge(t, cluster.StartPlanted(t, 3, program, "limit-exceeded"), wholeQuota)
		found := make(chan struct{})
		e.wrong = func(format string, args ...any) {
			t.Logf("found: "+format, args...)
			close(found) // only the first is told
		}
		stop := make(chan struct{})
		var tasks sync.WaitGroup
		tasks.Go(func() { e.observe(stop) })
		tasks.Go(func() { e.all(func(w int) { e.write(w, stop) }) })
		select {
		case <-found:
		case <-time.After(time.Minute):
			t.Error("more than the limit was not found in a minute")
		}
		close(stop)
		tasks.Wait()
	})
	t.Run("usage-kept-after-delete", func(t *testing.T) {
		e := newEdge(t, cluster.StartPlanted(t, 3, program, "usage-kept-after-delete"), wholeQuota)
		e.fill("configmaps", configMap)
		e.empty()
		e.fill("configmaps", configMap) // each is refused at once
		there, _, ok := e.look(0)
		if !ok || there.ConfigMaps > 1 { // a controller writes kube-root-ca.crt again, and is not refused
			t.Fatalf("%+v is there (%v)", there, ok)
		}
		// What settled waits for does not come.
		cluster.Await(t, 30*time.Second, "the status says what is not there", func() string {
			says := e.unsettled(&there)
			if !strings.HasPrefix(says, "it says ") {
				return "there is no difference: " + says
			}
			t.Logf("found: %s", says)
			return ""
		})
	})
}
