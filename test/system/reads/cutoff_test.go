package reads

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/test/harness/cluster"
)

// cutoffRow is a row of cutoff.txt.
type cutoffRow struct {
	at, verb, query, outcome string
	least, most              time.Duration
}

func readCutoff(t *testing.T) (rows []cutoffRow) {
	t.Helper()
	for _, r := range textRows(t, "cutoff.txt", 3) {
		row := cutoffRow{at: r.at, outcome: r.columns[1]}
		row.verb, row.query, _ = strings.Cut(r.columns[0], " ")
		least, most, _ := strings.Cut(r.columns[2], " ")
		var err1, err2 error
		row.least, err1 = time.ParseDuration(least)
		row.most, err2 = time.ParseDuration(most)
		if err1 != nil || err2 != nil {
			t.Fatalf("%s: %v %v", r.at, err1, err2)
		}
		rows = append(rows, row)
	}
	return rows
}

// TestReadsWithoutQuorum stops two of three voters, as a hung machine would, and
// reads in every mode from who is left: the voter that follows a leader that has
// stopped, a non-voter, and a leader without followers. Nothing is started again
// afterwards, and everything works.
func TestReadsWithoutQuorum(t *testing.T) {
	rows := readCutoff(t)
	r := cluster.StartReaders(t)
	voters := r.Cluster.Others(r.Nonvoter)
	l := newLedger(t, r, "cutoff", r.Leader, voters...)
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		l.mustPut(name)
	}
	page := getList(t, r.Leader, "/api/v1/namespaces/cutoff/configmaps?limit=2")
	old := l.mustPut("a")
	applied := l.mustPut("zz-last")
	for _, n := range r.Cluster.Nodes() {
		getList(t, n, "/api/v1/namespaces/cutoff/configmaps") // it has all of that
	}
	for _, n := range r.Cluster.Nodes() {
		health(t, n, http.StatusOK)
	}
	future := int64(applied) + 1_000_000
	words := strings.NewReplacer("{old}", fmt.Sprint(old), "{applied}", fmt.Sprint(applied), "{below}", fmt.Sprint(r.Below), "{future}", fmt.Sprint(future),
		"{valid}", page.Metadata.Continue, "{expired}", encodeToken(int64(r.Below), "cutoff/b\x00"), "{latest}", encodeToken(-1, "cutoff/b\x00"),
		"{futuretoken}", encodeToken(future, "cutoff/b\x00"))
	for _, x := range []struct {
		name    string
		stopped []*cluster.Node
		asked   []*cluster.Node
	}{
		{"no leader", []*cluster.Node{r.Leader, r.Cluster.Others(r.Leader, r.Follower, r.Nonvoter)[0]}, []*cluster.Node{r.Follower, r.Nonvoter}},
		{"no followers", r.Cluster.Others(r.Leader, r.Nonvoter), []*cluster.Node{r.Leader, r.Nonvoter}},
	} {
		t.Run(x.name, func(t *testing.T) {
			leader := r.Cluster.Leader(t)
			if x.name == "no followers" && leader != r.Leader {
				cluster.Members(t, r.Cluster, "transfer-leader", r.Leader.Name)
				r.Cluster.Leader(t, r.Leader)
			}
			cluster.Freeze(t, x.stopped...)
			var wg sync.WaitGroup
			for _, n := range x.asked {
				wg.Go(func() { health(t, n, http.StatusInternalServerError) })
				for _, row := range rows {
					wg.Go(func() { row.ask(t, n, words) })
				}
			}
			wg.Wait()
			cluster.Thaw(t, x.stopped...)
			cluster.Await(t, 20*time.Second, "all nodes serve Most Recent reads again", func() string {
				for _, n := range r.Cluster.Nodes() {
					if body, resp, err := n.Get(t, "/api/v1/namespaces/cutoff/configmaps"); err != nil || resp.StatusCode != 200 {
						return fmt.Sprintf("%s: %v %s", n.Name, err, body)
					}
				}
				return ""
			})
		})
	}
}

// health holds that a node lives, and is as ready as its quorum makes it, whether it votes or not.
func health(t *testing.T, n *cluster.Node, ready int) {
	for path, want := range map[string]int{"/livez": http.StatusOK, "/livez?verbose": http.StatusOK, "/readyz": ready, "/readyz?verbose": ready, "/healthz": ready} {
		if body, resp, err := n.Get(t, path); err != nil || resp.StatusCode != want {
			t.Errorf("%s: %s: %v, want %d\n%s", n.Name, path, err, want, body)
		}
	}
}

// ask sends the row's request to a node.
func (row cutoffRow) ask(t *testing.T, n *cluster.Node, words *strings.Replacer) {
	path := "/api/v1/namespaces/cutoff/configmaps"
	query := words.Replace(row.query)
	switch row.verb {
	case "get":
		path += "/a"
	case "watch":
		query += "&watch=1"
	}
	fail := func(format string, args ...any) {
		t.Errorf("%s: %s: %s %s: %s", row.at, n.Name, row.verb, row.query, fmt.Sprintf(format, args...))
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.API+path+"?"+query, nil)
	if err != nil {
		fail("%v", err)
		return
	}
	began := time.Now()
	resp, err := n.HTTP(t).Do(req)
	if err != nil {
		fail("%v", err)
		return
	}
	defer resp.Body.Close()
	var answer json.RawMessage
	if !(row.verb == "watch" && row.outcome == "200" && strings.Contains(row.query, "{applied}")) {
		err = json.NewDecoder(resp.Body).Decode(&answer)
	}
	took := time.Since(began)
	if err != nil {
		fail("%v", err)
		return
	}
	//wall: the timeout that the request named, with the lateness that the harness allows
	if took < row.least-50*time.Millisecond || took > row.most+cluster.Lateness {
		fail("answered after %s", took)
	}
	if row.least > 0 || row.most > 0 {
		t.Logf("%-4s %-6s %-90s %s after %s", n.Name, row.verb, row.query, row.outcome, took.Round(time.Millisecond))
	}
	if wrong := row.check(resp, answer); wrong != nil {
		fail("%v: %d %s", wrong, resp.StatusCode, answer)
	}
}

func (row cutoffRow) check(resp *http.Response, answer []byte) error {
	if row.outcome == "200" {
		staleness := resp.Header.Get("X-Quorate-Staleness")
		if resp.StatusCode != 200 || strings.Contains(row.query, "resourceVersion=0") != (staleness != "") && !strings.Contains(row.query, "continue") {
			return fmt.Errorf("X-Quorate-Staleness is %q", staleness)
		}
		return nil
	}
	body := answer
	code, _ := refusalOf(row.outcome)
	switch row.outcome {
	case "unavailable":
		code = 500
	case "busy":
		code = 429
	}
	reason := map[int]string{400: "BadRequest", 410: "Expired", 422: "Invalid", 429: "TooManyRequests", 500: "ServerTimeout", 504: "Timeout"}[code]
	if strings.HasPrefix(row.outcome, "stream ") {
		var e streamEvent
		if err := json.Unmarshal(answer, &e); err != nil || e.Type != "ERROR" || resp.StatusCode != 200 {
			return fmt.Errorf("not an error in the stream: %v", err)
		}
		resp = &http.Response{StatusCode: code, Header: http.Header{}}
		body = e.Object
	}
	refused := refusal{http: resp.StatusCode, retryAfter: resp.Header.Get("Retry-After")}
	if err := json.Unmarshal(body, &refused.Status); err != nil {
		return err
	}
	retries := slices.Contains([]int{429, 500, 504}, code)
	switch {
	case int(refused.Code) != code || string(refused.Reason) != reason || resp.StatusCode != code:
		return fmt.Errorf("not %d %s", code, reason)
	case retries && (refused.Details == nil || refused.Details.RetryAfterSeconds != 1):
		return fmt.Errorf("it does not say when to try again")
	case retries && !strings.HasPrefix(row.outcome, "stream ") && refused.retryAfter != "1" && !refused.lacksQuorum():
		return fmt.Errorf("Retry-After is %q", refused.retryAfter)
	case code == 500 && !strings.HasPrefix(refused.Message, fmt.Sprintf("The %s operation against configmaps could not be completed", row.verb)):
		return fmt.Errorf("the message is %q", refused.Message)
	}
	return nil
}
