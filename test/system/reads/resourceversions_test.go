package reads

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// TestVersions writes resourceVersions in ways that are right, unusual and wrong.
func TestVersions(t *testing.T) {
	r := cluster.SharedReaders(t)
	l := newLedger(t, r, "versions", r.Follower, r.Leader)
	current := l.mustPut("a") // the first of a list: the namespace also has what a controller has written
	l.mustPut("b")            // what a watch behind the current one sees
	for _, n := range r.Cluster.Nodes() {
		// Most Recent: the node has it now, and a watch of one second shows it.
		n.MustGet(t, "/api/v1/namespaces/"+l.namespace+"/configmaps/b")
	}
	words := strings.NewReplacer("{current}", fmt.Sprint(current), "{below}", fmt.Sprint(r.Below), "{future}", fmt.Sprint(current+1_000_000))
	for _, row := range textRows(t, "versions.txt", 2) {
		quoted, outcome := row.columns[0], row.columns[1]
		text, err := strconv.Unquote(words.Replace(strings.ReplaceAll(quoted, `\"`, `\x22`)))
		if err != nil {
			t.Fatalf("%s: %v", row.at, err)
		}
		for _, n := range r.Cluster.Nodes() {
			v := &version{t: t, n: n, namespace: l.namespace, text: text, where: fmt.Sprintf("%s: %s: %q", row.at, n.Name, text)}
			v.check(words.Replace(outcome))
		}
	}
	l.close()
}

// version is one spelling on one node.
type version struct {
	t         *testing.T
	n         *cluster.Node
	namespace string
	text      string
	where     string
}

// ask sends a request with the version and returns the code, the answer or the
// first event, and the revision that it is from.
func (v *version) ask(method, what string) (code int, body string, at uint64) {
	v.t.Helper()
	path := v.n.API + "/api/v1/namespaces/" + v.namespace + "/configmaps" + what + "resourceVersion=" + url.QueryEscape(v.text)
	send := ""
	if method == http.MethodDelete {
		send = `{"kind":"DeleteOptions","apiVersion":"v1","dryRun":["All"]}`
	}
	req, err := http.NewRequestWithContext(v.t.Context(), method, path, strings.NewReader(send))
	must.OK(v.t, err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := v.n.HTTP(v.t).Do(req)
	if err != nil {
		v.t.Fatalf("%s: %v", v.where, err)
	}
	defer resp.Body.Close()
	// A watch that has nothing to say ends by its timeoutSeconds.
	var answer json.RawMessage
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil && !strings.Contains(what, "watch") {
		v.t.Fatalf("%s: %v", v.where, err)
	}
	at, _ = strconv.ParseUint(resp.Header.Get("X-Quorate-Index"), 10, 64)
	return resp.StatusCode, string(answer), at
}

const (
	askGet    = "/a?"
	askList   = "?"
	askExact  = "?resourceVersionMatch=Exact&"
	askWatch  = "?watch=1&allowWatchBookmarks=true&timeoutSeconds=1&"
	askStream = "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=1&"
	askDelete = "?limit=1&"
)

// expect sends one request.
func (v *version) expect(method, what string, code int, fragment string) (at uint64) {
	v.t.Helper()
	gotCode, body, at := v.ask(method, what)
	if gotCode != code || !strings.Contains(body, fragment) {
		v.t.Errorf("%s: %s %s: %d %s\nwant %d %s", v.where, method, what, gotCode, body, code, fragment)
	}
	return at
}

func (v *version) check(outcome string) {
	v.t.Helper()
	const get = http.MethodGet
	kind, rest, _ := strings.Cut(outcome, " ")
	switch kind {
	case "number":
		number := cluster.Revision(v.t, rest)
		for _, what := range []string{askGet, askList} {
			if at := v.expect(get, what, 200, `"name":"a"`); at < number {
				v.t.Errorf("%s: from %d", v.where, at)
			}
		}
		v.expect(get, askExact, 200, fmt.Sprintf(`"metadata":{"resourceVersion":"%d"},"items":[{"metadata":{"name":"a"`, number))
		v.expect(get, askWatch, 200, `{"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"b"`)
	case "Any":
		v.expect(get, askGet, 200, "")
		v.expect(get, askList, 200, `"kind":"ConfigMapList"`)
		v.expect(get, askExact, 422, `resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"`)
		v.expect(get, askWatch, 200, `{"type":`)
	case "unset":
		v.expect(get, askGet, 200, `"name":"a"`)
		v.expect(get, askList, 200, `"name":"a"`)
		v.expect(get, askExact, 422, "resourceVersionMatch is forbidden unless resourceVersion is provided")
		for _, what := range []string{askWatch, askStream} {
			v.expect(get, what, 200, `{"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"`)
		}
	case "future", "below":
		v.checkUnavailable(kind)
	case "syntax", "range":
		reason := map[string]string{"syntax": "invalid syntax", "range": "value out of range"}[kind]
		message, err := json.Marshal(fmt.Sprintf("invalid resource version: resourceVersion: Invalid value: %q: strconv.ParseUint: parsing %q: %s", v.text, v.text, reason))
		must.OK(v.t, err)
		want := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":%s,"reason":"BadRequest","code":400}`, message)
		for _, what := range []string{askGet, askList, askExact, askWatch} {
			v.expect(get, what, 400, want)
		}
		v.expect(http.MethodDelete, askDelete, 400, want)
	default:
		v.t.Fatalf("%s: no outcome %q", v.where, outcome)
	}
}

// checkUnavailable is for revisions that are not there yet or not any more.
func (v *version) checkUnavailable(kind string) {
	v.t.Helper()
	const get = http.MethodGet
	number := strings.TrimLeft(v.text, "0")
	if kind == "below" {
		v.expect(get, askGet, 200, `"name":"a"`)
		v.expect(get, askList, 200, `"name":"a"`)
		const gone = `"message":"The resourceVersion for the provided list is too old.","reason":"Expired","code":410}`
		v.expect(get, askExact, 410, gone)
		v.expect(http.MethodDelete, askDelete, 410, gone)
		v.expect(get, askWatch, 200, `"message":"too old resource version: `+number+" (")
		return
	}
	late := `"message":"Timeout: Too large resource version: ` + number + ", current: "
	for _, what := range []string{askGet, askList, askExact} {
		v.expect(get, what, 504, late)
	}
	v.expect(get, askWatch, 200, `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",`+late)
	v.expect(http.MethodDelete, askDelete, 504, late)
}
