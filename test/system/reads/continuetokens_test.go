package reads

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// tokenCase is a row of tokens.txt.
type tokenCase struct {
	at, form, content, list, outcome string
}

func readTokens(t *testing.T) (cases []tokenCase) {
	t.Helper()
	for _, r := range textRows(t, "tokens.txt", 3) {
		form, content, ok := strings.Cut(r.columns[0], " ")
		if !ok {
			t.Fatalf("%s: a token without a form", r.at)
		}
		cases = append(cases, tokenCase{r.at, form, content, r.columns[1], r.columns[2]})
	}
	return cases
}

func (c tokenCase) token(t *testing.T, words *strings.Replacer) string {
	t.Helper()
	content := words.Replace(c.content)
	switch c.form {
	case "raw":
		return content
	case "json":
		return base64.RawURLEncoding.EncodeToString([]byte(content))
	case "blank":
		content = " " + strings.NewReplacer(":", " : ", ",", " ,\n").Replace(content) + "\n"
		return base64.RawURLEncoding.EncodeToString([]byte(content))
	case "padded":
		for {
			if s := base64.URLEncoding.EncodeToString([]byte(content)); strings.HasSuffix(s, "=") {
				return s
			}
			content += " "
		}
	}
	t.Fatalf("%s: no form %q", c.at, c.form)
	return ""
}

// TestTokens sends every node continue tokens that were cut, forged, encoded again
// or are of another list.
func TestTokens(t *testing.T) {
	r := cluster.SharedReaders(t)
	const ns = "tokens"
	l := newLedger(t, r, ns, r.Follower, r.Leader)
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		l.mustPut(name)
	}
	lists := map[string]string{
		"own": "/api/v1/namespaces/" + ns + "/configmaps", "all": "/api/v1/configmaps",
		"other": "/api/v1/namespaces/default/configmaps", "secrets": "/api/v1/namespaces/" + ns + "/secrets", "cluster": "/api/v1/nodes",
	}
	first := getList(t, r.Leader, lists["own"]+"?limit=2")
	genuine := string(r.Leader.MustGet(t, lists["own"]+"?limit=2&continue="+first.Metadata.Continue))
	l.mustDelete("d")
	l.mustPut("c1")
	words := func(start string) *strings.Replacer {
		return strings.NewReplacer("{rv}", first.Metadata.ResourceVersion, "{start}", start, "{ns}", ns,
			"{below}", fmt.Sprint(r.Below), "{future}", fmt.Sprint(first.revision(t)+1_000_000))
	}
	for _, c := range readTokens(t) {
		path := lists[c.list] + "?limit=2&continue=" + url.QueryEscape(c.token(t, words(ns+`/b\u0000`)))
		for _, n := range r.Cluster.Nodes() {
			body, resp, err := n.Get(t, path)
			must.OK(t, err)
			if wrong := c.check(resp.StatusCode, body, genuine, words(ns+"/b\x00")); wrong != "" {
				t.Errorf("%s: %s: %s\n%d %s", n.Name, c.at, wrong, resp.StatusCode, body)
			}
		}
	}
	t.Run("cut", func(t *testing.T) {
		for cut := 1; cut < len(first.Metadata.Continue); cut++ {
			checkDamaged(t, r.Nonvoter, lists["own"], first.Metadata.Continue[:cut], 400)
		}
	})
	t.Run("forged", func(t *testing.T) {
		for i := range first.Metadata.Continue {
			forged := []byte(first.Metadata.Continue)
			forged[i] ^= 1
			checkDamaged(t, r.Follower, lists["own"], string(forged), 200, 400, 410, 504)
		}
		if panics, _ := r.Follower.LookupMetric(t, "quorate_panics_total"); panics != 0 {
			t.Errorf("%v panics", panics)
		}
	})
	l.close()
}

// checkDamaged expects one of the codes, and nothing of another namespace.
func checkDamaged(t *testing.T, n *cluster.Node, path, token string, codes ...int) {
	t.Helper()
	body, resp, err := n.Get(t, path+"?limit=2&continue="+url.QueryEscape(token))
	must.OK(t, err)
	if !slices.Contains(codes, resp.StatusCode) {
		t.Errorf("%q: %d %s", token, resp.StatusCode, body)
	}
	if resp.StatusCode != 200 {
		if _, err := parseRefusal(resp, body); err != nil {
			t.Errorf("%q: %v", token, err)
		}
		return
	}
	var l listed
	if err := json.Unmarshal(body, &l); err != nil {
		t.Errorf("%q: %v", token, err)
	}
	for _, i := range l.Items {
		if !strings.Contains(path, "/"+i.Metadata.Namespace+"/") {
			t.Errorf("%q: leads to %+v", token, i)
		}
	}
}

// check returns what is wrong with an answer.
func (c tokenCase) check(code int, body []byte, genuine string, words *strings.Replacer) string {
	var l listed
	if code == 200 {
		if err := json.Unmarshal(body, &l); err != nil {
			return err.Error()
		}
	}
	names := []string{}
	for _, i := range l.Items {
		names = append(names, i.Metadata.Name)
	}
	switch c.outcome {
	case "same":
		if code != 200 || string(body) != genuine {
			return "not the genuine page " + genuine
		}
		return ""
	case "latest":
		if code != 200 || !slices.Equal(names, []string{"c", "c1"}) {
			return "not the page of now"
		}
		return ""
	case "empty":
		if code != 200 || len(names) != 0 || !strings.Contains(string(body), `"items":[]`) {
			return "not empty"
		}
		return ""
	}
	want, text := refusalOf(c.outcome)
	var s struct{ Kind, Message string }
	if err := json.Unmarshal(body, &s); err != nil {
		return err.Error()
	}
	pattern := regexp.QuoteMeta(words.Replace(text))
	pattern = strings.NewReplacer(`\{n\}`, `\d+`, `\{\*\}`, `.*`, `\{space\}`, ` `).Replace(pattern)
	if code != want || s.Kind != "Status" || !regexp.MustCompile("(?s)^"+pattern+"$").MatchString(s.Message) {
		return fmt.Sprintf("want %s", words.Replace(c.outcome))
	}
	return ""
}

// TestTokensAcrossRestore: what an old cluster gave out has expired in one that was
// made from its backup, and goes on from there; what the new one gives out does not
// exist in the old one.
func TestTokensAcrossRestore(t *testing.T) {
	r := cluster.SharedReaders(t)
	const path = "/api/v1/namespaces/restored/configmaps?limit=2"
	l := newLedger(t, r, "restored", r.Follower, r.Leader)
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		l.mustPut(name)
	}
	l.close()
	file := filepath.Join(r.Cluster.Dir, "tokens-backup")
	r.Cluster.Admin(t, "snapshot", "save", file, "--context", "quorate-"+r.Follower.Name)
	token := getList(t, r.Leader, path).Metadata.Continue

	port, err := cluster.FreePorts(1)
	must.OK(t, err)
	r.Cluster.Quorate(t, "snapshot", "restore", file, "--data-dir", filepath.Join(r.Cluster.Dir, "r1"), "--name", "r1", "--peer-advertise-address", fmt.Sprintf("127.0.0.1:%d", port+1000))
	r1 := r.Cluster.Launch(t, "r1", port, "--token-file", filepath.Join(r.Cluster.Dir, "token"))
	defer func() {
		r.Cluster.Forget(r1)
		r.Cluster.Kill(t, r1)
	}()
	r1.AwaitReady(t)
	body, resp, err := r1.Get(t, path+"&continue="+token)
	must.OK(t, err)
	refused, err := parseRefusal(resp, body)
	if err != nil || refused.Code != 410 || decodeToken(t, refused.ListMeta.Continue) != (continueToken{"meta.k8s.io/v1", -1, "restored/b\x00"}) {
		t.Fatalf("a token of the old cluster: %v %s", err, body)
	}
	next := getList(t, r1, path+"&continue="+refused.ListMeta.Continue)
	if next.revision(t) < r.Below+1_000_000_000 || len(next.Items) != 2 || next.Items[0].Metadata.Name != "c" {
		t.Errorf("it goes on with %v of %s", next.names(), next.Metadata.ResourceVersion)
	}
	for _, n := range r.Cluster.Others(r1) {
		body, resp, err := n.Get(t, path+"&continue="+next.Metadata.Continue)
		must.OK(t, err)
		if refused, err := parseRefusal(resp, body); err != nil || refused.Code != 504 || !strings.HasPrefix(refused.Message, "Timeout: Too large resource version: ") {
			t.Errorf("%s: a token of the new cluster: %v %s", n.Name, err, body)
		}
	}
}

// continueToken is what continue tokens look like to anybody who looks.
type continueToken struct {
	V     string `json:"v"`
	RV    int64  `json:"rv"`
	Start string `json:"start"`
}

func encodeToken(rv int64, start string) string {
	b, err := json.Marshal(continueToken{"meta.k8s.io/v1", rv, start})
	if err != nil {
		panic(err) // strings and numbers
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

func decodeToken(t testing.TB, token string) (c continueToken) {
	t.Helper()
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err != nil {
		t.Fatalf("continue token %q: %v", token, err)
	}
	return c
}
