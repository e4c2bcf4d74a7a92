package writes

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// revisionOf is the resourceVersion in an object or list.
func revisionOf(t *testing.T, object string) string {
	t.Helper()
	var o struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := json.Unmarshal([]byte(object), &o); err != nil || o.Metadata.ResourceVersion == "" {
		t.Fatalf("%v: %s", err, object)
	}
	return o.Metadata.ResourceVersion
}

// TestNamespaceDeletionRace: a namespace is deleted while 16 writers create in it
// through all nodes. Nothing survives, and whatever was acknowledged has its deletion in
// a watch.
func TestNamespaceDeletionRace(t *testing.T) {
	c := cluster.Shared(t)
	first := c.Nodes()[0]
	for _, n := range c.Nodes() {
		n.HTTP(t) // before many goroutines ask for it
	}
	for round := range 3 {
		name := fmt.Sprintf("crowded-%d", round)
		begin := revisionOf(t, first.Must(t, 201, "POST", "/api/v1/namespaces", "application/json", `{"metadata":{"name":"`+name+`"}}`))
		collection := "/api/v1/namespaces/" + name + "/configmaps"
		var mu sync.Mutex
		acknowledged := map[string]bool{}
		var many atomic.Int64
		enough := make(chan struct{})
		var wg sync.WaitGroup
		for writer := range 16 {
			n := c.Nodes()[writer%3]
			wg.Go(func() {
				for i := 0; ; i++ {
					object := fmt.Sprintf("w%d-%d", writer, i)
					code, answer, err := n.Exchange(t.Context(), n.HTTP(t), "POST", collection, "application/json", `{"metadata":{"name":"`+object+`"}}`)
					switch {
					case err != nil:
						t.Errorf("%s: %v", n.Name, err)
						return
					case code == http.StatusCreated:
						mu.Lock()
						acknowledged[object] = true
						mu.Unlock()
						if many.Add(1) == 160 {
							close(enough)
						}
					case code == http.StatusForbidden && strings.Contains(answer, `"reason":"NamespaceTerminating"`), code == http.StatusNotFound:
						return
					default:
						t.Errorf("%s: %d %s", n.Name, code, answer)
						return
					}
				}
			})
		}
		select {
		case <-enough:
		case <-time.After(30 * time.Second):
			t.Fatal("the writers do not write")
		}
		c.Nodes()[1].Must(t, 200, "DELETE", "/api/v1/namespaces/"+name, "", "")
		wg.Wait()
		cluster.Await(t, 30*time.Second, name+" is gone", func() string {
			code, answer, err := c.Nodes()[2].Exchange(t.Context(), c.Nodes()[2].HTTP(t), "GET", "/api/v1/namespaces/"+name, "", "")
			if code != http.StatusNotFound {
				return fmt.Sprint(code, err, answer)
			}
			return ""
		})
		for _, n := range c.Nodes() {
			if list := n.Must(t, 200, "GET", collection, "", ""); !strings.Contains(list, `"items":[]`) {
				t.Errorf("%s: %.300s", n.Name, list)
			}
			missing := awaitDeletions(t, n, collection, begin, acknowledged)
			if len(missing) > 0 {
				t.Errorf("%s: of %d acknowledged objects %d have no deletion: %.300s", n.Name, len(acknowledged), len(missing), missing)
			}
		}
	}
}

// awaitDeletions watches from a revision on until all names were deleted, and returns
// those that were not.
func awaitDeletions(t *testing.T, n *cluster.Node, collection, from string, names map[string]bool) (missing []string) {
	t.Helper()
	left := map[string]bool{}
	for name := range names {
		left[name] = true
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.API+collection+"?watch=1&timeoutSeconds=10&resourceVersion="+from, nil)
	must.OK(t, err)
	w, err := n.HTTP(t).Do(r)
	must.OK(t, err)
	defer w.Body.Close()
	for lines := bufio.NewScanner(w.Body); len(left) > 0 && lines.Scan(); {
		var event struct {
			Type   string
			Object struct{ Metadata struct{ Name string } }
		}
		must.OK(t, json.Unmarshal(lines.Bytes(), &event))
		if event.Type == "DELETED" {
			delete(left, event.Object.Metadata.Name)
		}
	}
	for name := range left {
		missing = append(missing, name)
	}
	slices.Sort(missing)
	return missing
}

// TestPreconditionsRace: of deletes and updates that all ask for the same version, through
// all nodes, one wins, and the others are told so.
func TestPreconditionsRace(t *testing.T) {
	c := cluster.Shared(t)
	first := c.Nodes()[0]
	const path = "/api/v1/namespaces/default/configmaps/contested"
	wins := map[string]int{}
	for round := range 15 {
		rv := revisionOf(t, first.Must(t, 201, "POST", "/api/v1/namespaces/default/configmaps", "application/json", `{"metadata":{"name":"contested"}}`))
		type result struct {
			what string
			code int
			text string
		}
		results := make(chan result, 12)
		for i := range 12 {
			n := c.Nodes()[(i+round)%3]
			client := n.HTTP(t)
			go func() {
				what, method, body := "delete", "DELETE", `{"preconditions":{"resourceVersion":"`+rv+`"}}`
				if i%2 == 0 {
					what, method, body = "update", "PUT", fmt.Sprintf(`{"metadata":{"name":"contested","resourceVersion":"%s"},"data":{"by":"%d"}}`, rv, i)
				}
				code, answer, err := n.Exchange(t.Context(), client, method, path, "application/json", body)
				results <- result{what, code, fmt.Sprint(err, answer)}
			}()
		}
		winner := ""
		for range 12 {
			switch r := <-results; {
			case r.code == http.StatusOK && winner == "":
				winner = r.what
			case r.code == http.StatusOK:
				t.Errorf("round %d: a %s wins after a %s", round, r.what, winner)
			case r.code != http.StatusConflict && r.code != http.StatusNotFound:
				t.Errorf("round %d: %s: %d %s", round, r.what, r.code, r.text)
			}
		}
		if winner == "" {
			t.Errorf("round %d: nobody wins", round)
		}
		wins[winner]++
		for _, n := range c.Nodes() {
			code, _, err := n.Exchange(t.Context(), n.HTTP(t), "GET", path, "", "")
			if err != nil || (code == http.StatusOK) != (winner == "update") {
				t.Errorf("round %d: %s answers %d %v after a %s has won", round, n.Name, code, err, winner)
			}
		}
		if winner == "update" {
			first.Must(t, 200, "DELETE", path, "", "")
		}
	}
	t.Logf("winners: %v", wins)
}

// TestFinalizerRace: a finalizer is added while the object is deleted, through other
// nodes. If it was acknowledged, it holds the object; if not, the object is gone.
func TestFinalizerRace(t *testing.T) {
	c := cluster.Shared(t)
	first := c.Nodes()[0]
	const path = "/api/v1/namespaces/default/configmaps/held"
	const merge = "application/merge-patch+json"
	held := 0
	for round := range 20 {
		first.Must(t, 201, "POST", "/api/v1/namespaces/default/configmaps", "application/json", `{"metadata":{"name":"held"}}`)
		deleted, patched := make(chan int, 1), make(chan int, 1)
		for i, f := range []func(n *cluster.Node, client *http.Client){
			func(n *cluster.Node, client *http.Client) {
				code, _, _ := n.Exchange(t.Context(), client, "DELETE", path, "", "")
				deleted <- code
			},
			func(n *cluster.Node, client *http.Client) {
				code, _, _ := n.Exchange(t.Context(), client, "PATCH", path, merge, `{"metadata":{"finalizers":["example.com/late"]}}`)
				patched <- code
			},
		} {
			n := c.Nodes()[(round+i)%3]
			client := n.HTTP(t)
			go f(n, client)
		}
		if code := <-deleted; code != http.StatusOK {
			t.Fatalf("round %d: the delete is answered with %d", round, code)
		}
		switch code := <-patched; code {
		case http.StatusOK:
			held++
			object := first.Must(t, 200, "GET", path, "", "")
			if !strings.Contains(object, `"finalizers":["example.com/late"]`) || !strings.Contains(object, "deletionTimestamp") {
				t.Errorf("round %d: %s", round, object)
			}
			if code, answer, err := c.Nodes()[1].Exchange(t.Context(), c.Nodes()[1].HTTP(t), "PATCH", path, merge, `{"metadata":{"finalizers":["example.com/late","example.com/later"]}}`); err != nil || code != 422 || !strings.Contains(answer, "no new finalizers can be added if the object is being deleted") {
				t.Errorf("round %d: another finalizer: %d %v %s", round, code, err, answer)
			}
			c.Nodes()[2].Must(t, 200, "PATCH", path, merge, `{"metadata":{"finalizers":null}}`)
		case http.StatusNotFound:
		default:
			t.Errorf("round %d: the patch is answered with %d", round, code)
		}
		for _, n := range c.Nodes() {
			n.Must(t, 404, "GET", path, "", "")
		}
	}
	t.Logf("held %d times of 20", held)
}

// TestRacingPreconditions deletes one object many times at once, each time on the
// condition that it is the one that was read, while others change it: exactly one
// version is deleted, and it is the one that a delete was acknowledged for.
func TestRacingPreconditions(t *testing.T) {
	c := cluster.Start(t, 3)
	const rounds, deleters = 20, 8
	for round := range rounds {
		name := fmt.Sprintf("raced-%d", round)
		cm := create(t, c.Nodes()[0].Typed(t), "default", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}})
		var wg sync.WaitGroup
		var done, conflicts atomic.Int64
		for i := range deleters {
			client := c.Nodes()[i%3].Typed(t).CoreV1().ConfigMaps("default")
			wg.Go(func() {
				if i%2 == 0 {
					changed := cm.DeepCopy()
					changed.Data, changed.ResourceVersion = map[string]string{"by": fmt.Sprint(i)}, ""
					_, _ = client.Update(t.Context(), changed, metav1.UpdateOptions{})
				}
				err := client.Delete(t.Context(), name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &cm.UID, ResourceVersion: &cm.ResourceVersion}})
				switch {
				case err == nil:
					done.Add(1)
				case apierrors.IsConflict(err):
					conflicts.Add(1)
				case !apierrors.IsNotFound(err):
					t.Errorf("delete: %v", err)
				}
			})
		}
		wg.Wait()
		_, err := c.Nodes()[1].Typed(t).CoreV1().ConfigMaps("default").Get(t.Context(), name, metav1.GetOptions{})
		if done.Load() > 1 || (done.Load() == 1) != apierrors.IsNotFound(err) {
			t.Fatalf("%d deletes were acknowledged, %d conflicted, and then: %v", done.Load(), conflicts.Load(), err)
		}
	}
}
