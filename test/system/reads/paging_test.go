package reads

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

const pagingObjects = 60

// pagedList is a list that was read page by page, each from another node.
type pagedList struct {
	query    string
	limit    int
	selects  func(name string) bool // nil: everything
	acked    uint64
	pages    []*listed
	revision uint64
}

// TestPaging reads lists page by page, every page from another node, while others
// write: the pages together are the state at the first page's resourceVersion.
func TestPaging(t *testing.T) {
	r := cluster.SharedReaders(t)
	l := newLedger(t, r, "paging", r.Follower, r.Leader, r.Follower)
	var stay []string
	for i := range pagingObjects {
		stay = append(stay, fmt.Sprintf("p-%02d", i))
		l.mustPut(stay[i])
	}
	l.mustPut("come-0")
	stop := l.churn(stay, 3*time.Millisecond)
	nodes := []*cluster.Node{r.Leader, r.Nonvoter, r.Follower, r.Cluster.Others(r.Leader, r.Nonvoter, r.Follower)[0]}
	even := func(name string) bool { return name != cluster.RootsName && parity(name) == "even" }
	but := func(name string) bool { return name != "p-07" }
	one := func(name string) bool { return name == "p-07" }
	var lists []*pagedList
	for i, x := range []pagedList{
		{query: "", limit: 7},
		{query: "", limit: 1},
		{query: "", limit: pagingObjects - 1},
		{query: "&resourceVersion={acked}", limit: 7},
		{query: "&resourceVersion={acked}&resourceVersionMatch=Exact", limit: 20},
		{query: "&resourceVersion={acked}&resourceVersionMatch=NotOlderThan", limit: 20},
		{query: "&labelSelector=parity%3Deven", limit: 4, selects: even},
		{query: "&fieldSelector=metadata.name!%3Dp-07", limit: 9, selects: but},
		{query: "&labelSelector=parity%3Deven&fieldSelector=metadata.name!%3Dp-07&resourceVersion={acked}", limit: 3, selects: even},
		{query: "&fieldSelector=metadata.name%3Dp-07", limit: 1, selects: one},
		{query: "", limit: 1_000_000},
		{query: "", limit: 0},
		{query: "", limit: -5},
	} {
		r.Link.Delay(time.Duration(i%3) * 50 * time.Millisecond)
		lists = append(lists, readPages(t, l, x, nodes, i))
	}
	r.Link.Delay(0)
	stop()
	l.close()
	for _, p := range lists {
		p.verify(t, l)
	}
}

// readPages reads a whole list, beginning on one of the nodes. The later pages are
// also read from all others, whose bytes must be the same.
func readPages(t *testing.T, l *ledger, p pagedList, nodes []*cluster.Node, begin int) *pagedList {
	t.Helper()
	p.acked = l.acked()
	path := "/api/v1/namespaces/" + l.namespace + "/configmaps"
	query := fmt.Sprintf("?limit=%d", p.limit) + strings.ReplaceAll(p.query, "{acked}", fmt.Sprint(p.acked))
	p.pages = []*listed{getList(t, nodes[begin%len(nodes)], path+query)}
	p.revision = p.pages[0].revision(t)
	// What follows is exact by its token; the first page's parameters would be too
	// many.
	selectors, _, _ := strings.Cut(query, "&resourceVersion")
	for i := 1; ; i++ {
		token := p.pages[len(p.pages)-1].Metadata.Continue
		if token == "" {
			return &p
		}
		n := nodes[(begin+i)%len(nodes)]
		next := path + selectors + "&continue=" + url.QueryEscape(token)
		page := getList(t, n, next)
		p.pages = append(p.pages, page)
		if i%5 == 1 {
			body := string(n.MustGet(t, next))
			for _, other := range nodes {
				if got := string(other.MustGet(t, next)); got != body {
					t.Errorf("%s and %s differ about page %d:\n%.500s\n%.500s", n.Name, other.Name, i+1, body, got)
				}
			}
		}
	}
}

// verify holds the pages against the state at the first one's revision.
func (p *pagedList) verify(t *testing.T, l *ledger) {
	t.Helper()
	want := l.at(p.revision)
	if p.selects != nil {
		want = slices.DeleteFunc(want, func(s string) bool { return !p.selects(s[:strings.IndexByte(s, '@')]) })
	}
	what := fmt.Sprintf("limit=%d%s at %d", p.limit, p.query, p.revision)
	switch exact := strings.Contains(p.query, "{acked}") && !strings.Contains(p.query, "NotOlderThan"); {
	case exact && p.revision != p.acked:
		t.Errorf("%s: asked for %d", what, p.acked)
	case p.revision < p.acked:
		t.Errorf("%s: %d had been acknowledged", what, p.acked)
	}
	var got []string
	for i, page := range p.pages {
		got = append(got, page.names()...)
		last := i == len(p.pages)-1
		if page.revision(t) != p.revision {
			t.Errorf("%s: page %d is of %s", what, i+1, page.Metadata.ResourceVersion)
		}
		if p.limit > 0 && (len(page.Items) > p.limit || !last && len(page.Items) < p.limit) {
			t.Errorf("%s: page %d has %d items", what, i+1, len(page.Items))
		}
		remaining := page.Metadata.RemainingItemCount
		switch {
		case last || p.selects != nil:
			if remaining != nil {
				t.Errorf("%s: page %d says that %d remain", what, i+1, *remaining)
			}
		case remaining == nil || int(*remaining) != len(want)-len(got):
			t.Errorf("%s: page %d says that %v remain, it is %d", what, i+1, remaining, len(want)-len(got))
		}
		if !last {
			start := page.Items[len(page.Items)-1].Metadata
			if c := decodeToken(t, page.Metadata.Continue); c != (continueToken{"meta.k8s.io/v1", int64(p.revision), start.Namespace + "/" + start.Name + "\x00"}) {
				t.Errorf("%s: the token of page %d is %+v", what, i+1, c)
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: %d pages have\n%v, there was\n%v", what, len(p.pages), got, want)
	}
	if p.limit > 0 && p.selects == nil && len(p.pages) != (len(want)+p.limit-1)/p.limit {
		t.Errorf("%s: %d items in %d pages", what, len(want), len(p.pages))
	}
}

// TestPagingExpired goes on with a token that the floor has passed: the same
// refusal on every node, and the token in it goes on in a state of now.
func TestPagingExpired(t *testing.T) {
	r := cluster.SharedReaders(t)
	path := r.ExpiredPath + "?limit=1&continue="
	var first string
	fresh := ""
	for _, n := range r.Cluster.Nodes() {
		body, resp, err := n.Get(t, path+r.Expired)
		must.OK(t, err)
		refused, err := parseRefusal(resp, body)
		if err != nil || refused.Code != 410 || refused.Reason != "Expired" || !strings.HasPrefix(refused.Message, "The provided continue parameter is too old to display a consistent list result.") {
			t.Fatalf("%s: %v %s", n.Name, err, body)
		}
		if first == "" {
			first, fresh = string(body), refused.ListMeta.Continue
		}
		if string(body) != first {
			t.Errorf("%s says %s, another node %s", n.Name, body, first)
		}
	}
	old := decodeToken(t, r.Expired)
	if c := decodeToken(t, fresh); c.RV != -1 || c.Start != old.Start {
		t.Errorf("the token to go on with is %+v, the old one was %+v", c, old)
	}
	// It goes on behind the key, in order, and from there consistently.
	var names []string
	nodes := r.Cluster.Nodes()
	revision := uint64(0)
	for i, token := 0, fresh; token != ""; i++ {
		page := getList(t, nodes[i%len(nodes)], path+token)
		if revision == 0 {
			revision = page.revision(t)
		}
		if page.revision(t) != revision || revision <= r.Below || len(page.Items) != 1 {
			t.Errorf("page %d is of %s, the first one of %d, the old one of %d", i, page.Metadata.ResourceVersion, revision, r.Below)
		}
		names = append(names, page.Items[0].Metadata.Name)
		token = page.Metadata.Continue
	}
	if want := []string{"expired-1", "expired-2", cluster.RootsName, "last"}; !slices.Equal(names, want) {
		t.Errorf("the rest is %v", names)
	}
}

// TestSameFloor: what is too old is the same on all nodes.
func TestSameFloor(t *testing.T) {
	r := cluster.SharedReaders(t)
	const path = "/api/v1/namespaces/default/configmaps?resourceVersionMatch=Exact&resourceVersion="
	floors := func() (floors []float64) {
		for _, n := range r.Cluster.Nodes() {
			floors = append(floors, n.Metric(t, "quorate_history_floor"))
		}
		return floors
	}
	// The floor moves on while this looks at it.
	cluster.Await(t, 20*time.Second, "a look at all nodes with the same floor", func() string {
		before := floors()
		if len(slices.Compact(slices.Clone(before))) != 1 {
			return fmt.Sprint(before)
		}
		floor := uint64(before[0])
		var answers []string
		for _, n := range r.Cluster.Nodes() {
			for _, at := range []uint64{floor, floor - 1} {
				body, resp, err := n.Get(t, path+fmt.Sprint(at))
				must.OK(t, err)
				answers = append(answers, fmt.Sprintf("%d %s", resp.StatusCode, body))
			}
		}
		if after := floors(); !slices.Equal(after, before) {
			return fmt.Sprintf("%v, then %v", before, after)
		}
		for i := 0; i < len(answers); i += 2 {
			if answers[i] != answers[0] || answers[i+1] != answers[1] {
				t.Errorf("%s: %s\n%s\n%s: %s\n%s", r.Cluster.Nodes()[0].Name, answers[0], answers[1], r.Cluster.Nodes()[i/2].Name, answers[i], answers[i+1])
			}
		}
		const want = `"message":"The resourceVersion for the provided list is too old.","reason":"Expired","code":410}`
		if !strings.HasPrefix(answers[0], "200 ") || !strings.HasPrefix(answers[1], "410 ") || !strings.Contains(answers[1], want) {
			t.Errorf("at the floor %d: %.200s\nbelow: %s", floor, answers[0], answers[1])
		}
		return ""
	})
}
