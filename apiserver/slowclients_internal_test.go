package apiserver

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/apiserver/access/fairness"
)

// TestSlowRoom: slow requests that find no room keep their seats, and in the end the
// user who holds the most loses the one that has been slow for longest.
func TestSlowRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := &slowClients{limit: 400}
		var mu sync.Mutex
		cut := map[string]time.Duration{}
		began := time.Now()
		wait := func(user, name string, until time.Time) *slowRequest {
			p := set.newPace(slowClient{user: user, conn: httptest.NewRecorder(), ticket: new(fairness.Ticket)}, until, 100, func(*http.ResponseController) error {
				mu.Lock()
				defer mu.Unlock()
				cut[name] = time.Since(began)
				return nil
			})
			p.begin()
			return p
		}
		over := began.Add(time.Minute)
		a := wait("alice", "alice", over)
		time.Sleep(time.Second)
		for _, name := range []string{"first", "second", "third"} {
			wait("mallory", name, over)
			time.Sleep(time.Second)
		}
		late := wait("bob", "late", began.Add(30*time.Second))
		time.Sleep(time.Second)
		synctest.Wait()
		late.mu.Lock()
		slow := late.slow
		late.mu.Unlock()
		mu.Lock()
		ended := maps.Clone(cut)
		mu.Unlock()
		if len(ended) != 0 || slow || set.held != 400 {
			t.Fatalf("after 5 s: %v were cut, %d bytes", ended, set.held)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		mu.Lock()
		ended = maps.Clone(cut)
		mu.Unlock()
		if at := ended["first"]; len(ended) != 1 || at < time.Second+slowAfter+minSlowTime || at > 7*time.Second {
			t.Fatalf("after 10 s these were cut: %v, want mallory's first", ended)
		}
		if !a.stop() {
			t.Error("alice was not slow")
		}
		late.stop()
		time.Sleep(time.Minute)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if _, ok := cut["alice"]; ok {
			t.Error("alice was cut after her request had ended")
		}
		for _, name := range []string{"second", "third"} {
			if cut[name] < 60*time.Second-time.Second {
				t.Errorf("%s was cut at %s, its time was over after a minute", name, cut[name])
			}
		}
	})
}
