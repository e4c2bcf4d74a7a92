package writes

import (
	"fmt"
	"testing"
	"time"

	"github.com/quorate/quorate/test/harness/cluster"
)

// TestEventExpiryOutlivesLeader: an Event's end is part of its entry. The leader that
// would delete it is killed; the next one does it, and a watch through another node hears
// of it.
func TestEventExpiryOutlivesLeader(t *testing.T) {
	const ttl = 8 * time.Second
	c := cluster.Start(t, 3, fmt.Sprintf("event-ttl=%s", ttl))
	leader := c.Leader(t)
	survivors := c.Others(leader)
	const collection = "/api/v1/namespaces/default/events"
	began := time.Now()
	created := survivors[0].Must(t, 201, "POST", collection, "application/json",
		`{"metadata":{"name":"short"},"involvedObject":{"kind":"ConfigMap","namespace":"default","name":"x"},"reason":"Test","type":"Normal"}`)
	c.Kill(t, leader)
	c.Leader(t, survivors[1])
	if time.Since(began) < ttl-3*time.Second {
		survivors[1].Must(t, 200, "GET", collection+"/short", "", "")
	}
	for _, n := range survivors {
		cluster.Await(t, ttl+20*time.Second, "the event is gone at "+n.Name, func() string {
			code, answer, err := n.Exchange(t.Context(), n.HTTP(t), "GET", collection+"/short", "", "")
			if code != 404 {
				return fmt.Sprint(code, err, answer)
			}
			return ""
		})
		if took := time.Since(began); took < ttl {
			t.Errorf("it is gone at %s after %s", n.Name, took)
		}
		if missing := awaitDeletions(t, n, collection, revisionOf(t, created), map[string]bool{"short": true}); len(missing) > 0 {
			t.Errorf("%s: a watch does not hear of the end", n.Name)
		}
	}
}
