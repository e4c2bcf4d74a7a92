package apiserver_test

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
)

// exchange is a request of a requests.txt.
type exchange struct {
	name, method, path string
	await              string // a path that answers 200 before the next request
	header             http.Header
	body               string
}

func exchanges(t *testing.T, dir string) (list []exchange) {
	t.Helper()
	text, err := os.ReadFile(dir + "requests.txt")
	must.OK(t, err)
	for _, part := range strings.Split(string(text), "### ")[1:] {
		head, body, _ := strings.Cut(strings.TrimSuffix(part, "\n"), "\n\n")
		lines := strings.Split(strings.TrimSuffix(head, "\n"), "\n")
		x := exchange{name: lines[0], header: http.Header{}, body: repeated(strings.TrimSuffix(body, "\n"))}
		x.method, x.path, _ = strings.Cut(lines[1], " ")
		for _, l := range lines[2:] {
			name, value, _ := strings.Cut(l, ": ")
			if name == "await" {
				x.await = value
				continue
			}
			x.header.Set(name, value)
		}
		list = append(list, x)
	}
	return list
}

var repetition = regexp.MustCompile(`<<(.+?)\*(\d+)>>`)

// repeated replaces <<text*1000>> by a thousand of it.
func repeated(s string) string {
	return repetition.ReplaceAllStringFunc(s, func(m string) string {
		g := repetition.FindStringSubmatch(m)
		n := 0
		fmt.Sscan(g[2], &n)
		return strings.Repeat(g[1], n)
	})
}

// TestUpstream asks what is in testdata/upstream/requests.txt and compares the
// answers, byte for byte, with those of upstream's server in upstream.txt: status,
// media type, warnings, Retry-After and body. Answers that differ on purpose are in
// differences.txt, each with a reason, and docs/differences.md says so to users.
func TestUpstream(t *testing.T) { compareAnswers(t, judged(t, nil), "testdata/upstream/") }

// TestDefinitionsUpstream is TestUpstream for bad definitions of custom resources and
// bad objects of good ones.
func TestDefinitionsUpstream(t *testing.T) {
	e := judged(t, nil)
	if *reference == "" {
		e.lead()
	}
	compareAnswers(t, e, "testdata/definitions/")
}

// compareAnswers asks what is in a directory's requests.txt.
func compareAnswers(t *testing.T, e *env, dir string) {
	t.Helper()
	got := map[string]string{}
	var order []string
	for _, x := range exchanges(t, dir) {
		w, answer := e.do(x.method, x.path, x.header, x.body)
		var b strings.Builder
		fmt.Fprintf(&b, "%d", w.StatusCode)
		for _, name := range []string{"Content-Type", "Retry-After", "Warning"} {
			for _, v := range w.Header.Values(name) {
				fmt.Fprintf(&b, "\n%s: %s", name, v)
			}
		}
		if w.StatusCode >= 400 {
			fmt.Fprintf(&b, "\n%s", normal(strings.TrimSuffix(answer, "\n")))
		}
		got[x.name] = b.String()
		order = append(order, x.name)
		if x.await != "" {
			e.await(x.await, http.StatusOK)
		}
	}
	if *update {
		var b strings.Builder
		b.WriteString("# What kube-apiserver v1.36.3 answers to requests.txt.\n")
		for _, name := range order {
			fmt.Fprintf(&b, "\n### %s\n%s\n", name, got[name])
		}
		golden(t, dir+"upstream.txt", b.String())
		return
	}
	want, ours := answers(t, dir+"upstream.txt"), answers(t, dir+"differences.txt")
	for _, name := range order {
		reason, expected, different := strings.Cut(ours[name], "\n")
		switch {
		case !different:
			expected = want[name]
		case expected == want[name]:
			t.Errorf("%s: is no difference any more", name)
		case !strings.HasPrefix(reason, "because "):
			t.Errorf("%s: a difference without a reason", name)
		}
		if got[name] != expected {
			t.Errorf("%s: got\n%s\nwant\n%s", name, clip(got[name]), clip(expected))
		}
		delete(ours, name)
	}
	for name := range ours {
		t.Errorf("%s: differs, but is not asked", name)
	}
}

func answers(t *testing.T, file string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(file)
	must.OK(t, err)
	all := map[string]string{}
	for _, part := range strings.Split(string(text), "\n### ")[1:] {
		name, answer, _ := strings.Cut(part, "\n")
		all[name] = strings.TrimSuffix(answer, "\n")
	}
	return all
}

// normal hides what is different on every server: uids, revisions and times.
func normal(s string) string {
	s = uidCell.ReplaceAllString(s, "<uid>")
	if i := strings.Index(s, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"); i >= 0 {
		s = regexp.MustCompile(`x{32,}`).ReplaceAllString(s, "<xs>")
	}
	return times.ReplaceAllString(revisions.ReplaceAllString(s, "$1<rv>"), "<time>")
}

var (
	revisions = regexp.MustCompile(`(ResourceVersion in (?:object meta: |record \()|resourceVersion\\*":\\*")\d+`)
	times     = regexp.MustCompile(`2\d{3}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
)
