package faults

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// TestHistory takes a history with a floor through everything that happens to
// nodes. After each of these, every node tells the same events and the same past
// from the floor on, and refuses what is below it.
func TestHistory(t *testing.T) {
	cluster.SkipInShort(t, "it measures how long a fault lasts")
	h := newPast(t)
	c := h.c
	nodes := c.Nodes()
	h.write(t, 200, nodes...)
	h.same(t, "to begin with", nodes...)

	follower := c.Others(c.Leader(t))[0]
	c.Stop(t, follower)
	c.Restart(t, follower)
	h.same(t, "after a restart of "+follower.Name, nodes...)

	leader := c.Leader(t)
	c.Kill(t, leader)
	survivors := c.Others(leader)
	h.write(t, 100, survivors...)
	h.same(t, "while the killed leader is away", survivors...)
	c.Restart(t, leader)
	h.same(t, "after kill -9 of the leader", nodes...)

	away := c.Others(c.Leader(t))[0]
	c.Kill(t, away)
	newest := c.Others(away)[0].Metric(t, "quorate_history_newest")
	h.write(t, 600, c.Others(away)...)
	cluster.AwaitCompacted(t, newest, c.Others(away)...)
	c.Restart(t, away)
	if n := away.Metric(t, "quorate_snapshots_installed_total"); n < 1 {
		t.Errorf("%s has caught up from the log; it was to need a snapshot", away.Name)
	}
	h.same(t, "after a snapshot was installed on "+away.Name, nodes...)

	file := filepath.Join(c.Dir, "backup")
	c.Admin(t, "snapshot", "save", file)
	n4 := h.join(t, "n4")
	h.same(t, "after n4 has joined", append(nodes, n4)...)

	c.Kill(t, n4)
	c.Kill(t, nodes...)
	c.RestartAll(t)
	h.same(t, "after the end of all nodes", nodes...)

	h.restored(t, file)
	t.Logf("%d events after the floor at %s, read from %d positions on every node after each fault", len(h.events), h.floor, len(h.samples())+1)
}

// Settings of TestHistory: bytes move the floor once, then nothing does. A
// follower that is away for longer than trailing-logs needs a snapshot, also when
// the log was kept for one that was sent another snapshot just before.
var historySettings = []string{
	"history-max-bytes=4194304", "history-retention=9m",
	"snapshot-entries=200", "trailing-logs=200", "snapshot-interval=200ms", "snapshot-log-max-bytes=65536", "promote-after=1s",
}

// past is what is known about a namespace's ConfigMaps from the floor on.
type past struct {
	c         *cluster.Cluster
	namespace string
	floor     string
	base      map[string]string // the objects at the floor: resourceVersions by name
	events    []cluster.Event   // all after the floor
	bodies    map[string]string // answers of exact lists, by resourceVersion
	next      string            // the path of the second page of a list from before
}

// newPast starts a cluster and writes more than its history may have bytes, so
// that there is something below the floor.
func newPast(t *testing.T) *past {
	t.Helper()
	h := &past{c: cluster.Start(t, 3, historySettings...), namespace: "past", bodies: map[string]string{}}
	first := h.c.Nodes()[0]
	cluster.Namespace(t, first, h.namespace)
	client := first.Typed(t).CoreV1().ConfigMaps(h.namespace)
	big, err := client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "big"}}, metav1.CreateOptions{})
	must.OK(t, err)
	grow := func(data map[string]string) {
		t.Helper()
		big.Data = data
		if big, err = client.Update(t.Context(), big, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	written := 0
	more := func() {
		t.Helper()
		written++
		grow(map[string]string{"i": strconv.Itoa(written), "k": strings.Repeat("x", 128<<10)})
	}
	for range 48 {
		more()
	}
	// The floor stops where little enough is left. Not every stop leaves room for what
	// the test writes; one more of these makes it move again.
	var floors []float64
	cluster.Await(t, 60*time.Second, "the floor has moved, and is the same on all nodes", func() string {
		kept, most := first.Metric(t, "quorate_history_bytes"), first.Metric(t, "quorate_history_max_bytes")
		floors = nil
		for _, n := range h.c.Nodes() {
			floors = append(floors, n.Metric(t, "quorate_history_floor"))
		}
		switch {
		case floors[0] == 0 || kept > most || floors[1] != floors[0] || floors[2] != floors[0]:
			return fmt.Sprintf("%v; the newest version is %s", floors, big.ResourceVersion)
		case kept > most*4/5:
			more()
			return fmt.Sprintf("%.0f of %.0f bytes are left", kept, most)
		}
		return ""
	})
	grow(nil) // what is written from now on is small
	h.floor = strconv.FormatFloat(floors[0], 'f', 0, 64)
	h.base = itemsOf(t, h.exact(t, first, h.floor))
	var page corev1.ConfigMapList
	pages := "/api/v1/namespaces/" + h.namespace + "/configmaps?limit=1"
	must.OK(t, json.Unmarshal(first.MustGet(t, pages), &page))
	h.next = pages + "&continue=" + page.Continue
	h.bodies[h.next] = string(first.MustGet(t, h.next))
	return h
}

func (h *past) path(rv string) string {
	return "/api/v1/namespaces/" + h.namespace + "/configmaps?resourceVersionMatch=Exact&resourceVersion=" + rv
}

// exact is the list as it was at a revision, as one node answers.
func (h *past) exact(t *testing.T, n *cluster.Node, rv string) string {
	t.Helper()
	return string(n.MustGet(t, h.path(rv)))
}

// itemsOf are the resourceVersions of a list's items, by name.
func itemsOf(t *testing.T, body string) map[string]string {
	t.Helper()
	var list corev1.ConfigMapList
	must.OK(t, json.Unmarshal([]byte(body), &list))
	items := map[string]string{}
	for _, o := range list.Items {
		items[o.Name] = o.ResourceVersion
	}
	return items
}

// last is the newest revision of what is known.
func (h *past) last() string {
	if len(h.events) == 0 {
		return h.floor
	}
	return h.events[len(h.events)-1].ResourceVersion
}

// write deletes what tests have written, lets writers acknowledge some new writes through
// nodes, and adds what one of these nodes tells about all that: every
// acknowledged write is in it.
func (h *past) write(t *testing.T, acks int64, nodes ...*cluster.Node) {
	t.Helper()
	client := nodes[0].Typed(t).CoreV1().ConfigMaps(h.namespace)
	// A controller would write the other one again, at a time of its own.
	written := metav1.ListOptions{FieldSelector: "metadata.name!=" + cluster.RootsName}
	must.OK(t, client.DeleteCollection(t.Context(), metav1.DeleteOptions{}, written))
	l := startLoad(t, h.namespace, 8, nodes)
	l.awaitAcks(acks)
	l.Stop()
	end, err := client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "end-"}}, metav1.CreateOptions{})
	must.OK(t, err)
	events := nodes[0].Watch(t, h.namespace, h.last(), end.ResourceVersion)
	cluster.InOrder(t, nodes[0].Name, events)
	seesAll(t, l, events)
	h.events = append(h.events, events...)
}

// at is what there was at the i-th event, by replaying the events up to it.
func (h *past) at(i int) map[string]string {
	state := maps.Clone(h.base)
	for _, e := range h.events[:i+1] {
		if e.Type == "DELETED" {
			delete(state, e.Name)
		} else {
			state[e.Name] = e.ResourceVersion
		}
	}
	return state
}

// samples are indexes of events all over the history, both ends included.
func (h *past) samples() []int {
	n := len(h.events) - 1
	return []int{0, n / 5, 2 * n / 5, 3 * n / 5, 4 * n / 5, n}
}

// same fails unless all of the nodes tell the history, from wherever one asks.
func (h *past) same(t *testing.T, when string, nodes ...*cluster.Node) {
	t.Helper()
	for _, n := range nodes {
		who := n.Name + " " + when
		cluster.Await(t, 20*time.Second, who+" has everything", func() string {
			if newest := n.Metric(t, "quorate_history_newest"); newest < float64(cluster.Revision(t, h.last())) {
				return fmt.Sprintf("it is at %.0f, the history ends at %s", newest, h.last())
			}
			return ""
		})
		if floor := strconv.FormatFloat(n.Metric(t, "quorate_history_floor"), 'f', 0, 64); floor != h.floor {
			t.Errorf("%s: the floor is %s, it was %s", who, floor, h.floor)
		}
		cluster.SameEvents(t, who, n.Watch(t, h.namespace, h.floor, h.last()), "the history", h.events)
		for _, i := range h.samples() {
			rv := h.events[i].ResourceVersion
			if i < len(h.events)-1 {
				cluster.SameEvents(t, who+", from "+rv, n.Watch(t, h.namespace, rv, h.last()), "the history", h.events[i+1:])
			}
			h.sameList(t, who, n, rv, h.at(i))
		}
		h.sameList(t, who, n, h.floor, h.base)
		if body := string(n.MustGet(t, h.next)); body != h.bodies[h.next] {
			t.Errorf("%s: a page behind a token from before:\n%s\n%s", who, body, h.bodies[h.next])
		}
		h.gone(t, who, n, strconv.FormatUint(cluster.Revision(t, h.floor)-1, 10))
	}
}

// sameList fails unless an exact list has what there was, in the same bytes as
// the first time that anybody asked.
func (h *past) sameList(t *testing.T, who string, n *cluster.Node, rv string, want map[string]string) {
	t.Helper()
	body := h.exact(t, n, rv)
	if got := itemsOf(t, body); !maps.Equal(got, want) {
		t.Errorf("%s lists at %s\n%v, there were\n%v", who, rv, got, want)
	}
	if _, ok := h.bodies[rv]; !ok {
		h.bodies[rv] = body
	}
	if body != h.bodies[rv] {
		t.Errorf("%s lists at %s other bytes than there were before:\n%s\n%s", who, rv, body, h.bodies[rv])
	}
}

// gone fails unless a revision is too old for lists and watches.
func (h *past) gone(t *testing.T, who string, n *cluster.Node, rv string) {
	t.Helper()
	body, resp, err := n.Get(t, h.path(rv))
	if err != nil || resp.StatusCode != http.StatusGone {
		t.Errorf("%s: a list at %s: %v %s", who, rv, err, body)
	}
	w, err := n.Typed(t).CoreV1().ConfigMaps(h.namespace).Watch(t.Context(), metav1.ListOptions{ResourceVersion: rv})
	if err != nil {
		t.Errorf("%s: a watch from %s: %v", who, rv, err)
		return
	}
	defer w.Stop()
	select {
	case e := <-w.ResultChan():
		if event, err := cluster.ToEvent(e); !apierrors.IsResourceExpired(err) {
			t.Errorf("%s: a watch from %s says %+v %v, want 410", who, rv, event, err)
		}
	case <-time.After(10 * time.Second):
		t.Errorf("%s: a watch from %s says nothing, want 410", who, rv)
	}
}

// join adds a node that was never there before.
func (h *past) join(t *testing.T, name string) *cluster.Node {
	t.Helper()
	var made struct{ Token string }
	must.OK(t, json.Unmarshal([]byte(h.c.Admin(t, "token", "create", "-o", "json")), &made))
	token := filepath.Join(h.c.Dir, "token-of-"+name)
	must.OK(t, os.WriteFile(token, []byte(made.Token+"\n"), 0o600))
	api := strings.TrimPrefix(h.c.Nodes()[0].API, "https://")
	n := h.c.Launch(t, name, h.c.FreePort, append(flags(historySettings), "--join", api, "--join-token", "@"+token)...)
	n.AwaitReady(t)
	return n
}

// flags are settings of a playground as flags of a node.
func flags(settings []string) (out []string) {
	for _, s := range settings {
		out = append(out, "--"+s)
	}
	return out
}

// restored makes a new cluster of a backup: all of the present is there, and
// nothing of the past.
func (h *past) restored(t *testing.T, file string) {
	t.Helper()
	dir, peer := filepath.Join(h.c.Dir, "r1"), fmt.Sprintf("127.0.0.1:%d", h.c.FreePort+1000)
	h.c.Quorate(t, "snapshot", "restore", file, "--data-dir", dir, "--name", "r1", "--peer-advertise-address", peer)
	r := h.c.Launch(t, "r1", h.c.FreePort, "--token-file", filepath.Join(h.c.Dir, "token"),
		"--controllers=*,-root-ca-certificate-publisher-controller") // the history has what clients write alone
	r.AwaitReady(t)
	floor := uint64(r.Metric(t, "quorate_history_floor"))
	if floor < cluster.Revision(t, h.last())+1_000_000_000 {
		t.Errorf("the floor of the new cluster is %d, the old one's history ends at %s", floor, h.last())
	}
	for _, i := range h.samples() {
		h.gone(t, "the new cluster", r, h.events[i].ResourceVersion)
	}
	h.gone(t, "the new cluster", r, strconv.FormatUint(floor-1, 10))
	body := h.exact(t, r, strconv.FormatUint(floor, 10))
	if got, want := itemsOf(t, body), h.at(len(h.events)-1); !maps.Equal(got, want) {
		t.Errorf("the new cluster has\n%v, there were\n%v", got, want)
	}
	// From here on there is a history again.
	made, err := r.Typed(t).CoreV1().ConfigMaps(h.namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, metav1.CreateOptions{})
	must.OK(t, err)
	want := []cluster.Event{{Type: "ADDED", Name: "new", ResourceVersion: made.ResourceVersion}}
	cluster.SameEvents(t, "the new cluster", r.Watch(t, h.namespace, strconv.FormatUint(floor, 10), made.ResourceVersion), "its history", want)
}
