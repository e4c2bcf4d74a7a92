package report

import (
	"bytes"
	"context"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/judges/check"
	"github.com/quorate/quorate/test/judges/history"
)

// load reads one of the histories that the checks are tested with.
func load(t *testing.T, name string) *history.History {
	t.Helper()
	h, err := history.Load(filepath.Join("../check/testdata", name+".txt"))
	must.OK(t, err)
	return h
}

func draw(t *testing.T, h *history.History) (string, *check.Verdict) {
	t.Helper()
	v := check.All(h)
	var b bytes.Buffer
	must.OK(t, Write(&b, h, v))
	return b.String(), v
}

// TestPage: everything that is wrong is on the page, and nothing on it comes from
// elsewhere.
func TestPage(t *testing.T) {
	files, err := filepath.Glob("../check/testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no histories", err)
	}
	for _, name := range files {
		h := load(t, strings.TrimSuffix(filepath.Base(name), ".txt"))
		page, v := draw(t, h)
		text := html.UnescapeString(page)
		for _, x := range v.Violations {
			if !strings.Contains(text, x.Text) || !strings.Contains(text, x.Check) {
				t.Errorf("%s: the page lacks %s: %s", name, x.Check, x.Text)
			}
		}
		if v.OK() != strings.Contains(page, "Every promise was kept") {
			t.Errorf("%s: wrong headline", name)
		}
		for _, word := range []string{"http:", "https:", "src=", "<link", "@import", "url("} {
			if strings.Contains(page, word) {
				t.Errorf("%s: the page needs something else: %s", name, word)
			}
		}
	}
}

// TestHostileText: what a run contains is text, whatever it says.
func TestHostileText(t *testing.T) {
	const evil = `</script><script>alert(1)</script><img onerror=alert(2)>`
	h := load(t, "stale-read")
	h.Name = evil
	h.Faults = append(h.Faults, history.Fault{Kind: evil, Nodes: []string{evil}, Detail: evil})
	h.Ops[0].Reason, h.Ops[0].Key = evil, evil
	page, _ := draw(t, h)
	if strings.Contains(page, "<script>alert") || strings.Contains(page, "<img") {
		t.Error("a name became a tag")
	}
}

// TestLarge: 100,000 operations and 400,000 events make a page that a browser opens.
func TestLarge(t *testing.T) {
	page, _ := draw(t, large(100_000, 4))
	if len(page) > 24<<20 {
		t.Errorf("the page has %d MiB", len(page)>>20)
	}
	browse(t, page, fmt.Sprintf(`data-drawn="%d"`, 50_000))
}

// large makes a history of n operations, and w watches that see all of them.
func large(n, w int) *history.History {
	h := &history.History{Name: "large"}
	for i := range n {
		at := time.Duration(i) * 100 * time.Microsecond
		kind := history.Update
		if i < 10 {
			kind = history.Create
		}
		it := history.Item{Key: fmt.Sprintf("k%d", i%10), Value: fmt.Sprint("v", i), Revision: uint64(i + 10)}
		h.Ops = append(h.Ops, history.Op{Client: i % 10, Node: "n1", Kind: kind, Key: it.Key, Value: it.Value, Call: at, Return: at + 900*time.Microsecond, Outcome: history.OK, Revision: it.Revision})
		h.Log = append(h.Log, history.Entry{Item: it})
	}
	for c := range w {
		x := history.Watch{Client: 100 + c, Node: "n1", From: 9, End: h.Ops[n-1].Return + time.Second}
		for i := range h.Ops {
			o := &h.Ops[i]
			kind := history.Modified
			if o.Kind == history.Create {
				kind = history.Added
			}
			x.Events = append(x.Events, history.Event{Type: kind, Item: history.Item{Key: o.Key, Value: o.Value, Revision: o.Revision}, At: o.Return})
		}
		h.Watches = append(h.Watches, x)
	}
	return h
}

// TestDrawn: the script of a page runs to its end.
func TestDrawn(t *testing.T) {
	for _, h := range []*history.History{load(t, "order-reused"), {}} {
		page, _ := draw(t, h)
		browse(t, page, fmt.Sprintf(`data-drawn="%d"`, len(h.Ops)))
	}
}

// browse opens a page in a browser without a window and looks for text in what
// the script made of it.
func browse(t *testing.T, page, want string) {
	t.Helper()
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("no chromium")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "page.html")
	must.OK(t, os.WriteFile(file, []byte(page), 0o644))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--user-data-dir="+filepath.Join(dir, "profile"),
		"--dump-dom", "file://"+file).Output()
	if err != nil {
		t.Fatalf("chromium: %v", err)
	}
	if head, _, _ := strings.Cut(string(out), "<style>"); !strings.Contains(head, want) {
		t.Errorf("the script did not come to its end: want %s in %.200s", want, head)
	}
}

// TestIndex: failed runs come first, with what failed, and a link.
func TestIndex(t *testing.T) {
	var runs []Run
	for i, name := range []string{"good-basic", "stale-read", "good-ties"} {
		h := load(t, name)
		h.Seed = uint64(i)
		runs = append(runs, Run{Name: name, Seed: h.Seed, Verdict: check.All(h), Link: name + ".html", Note: "SEED=" + fmt.Sprint(i)})
	}
	file := filepath.Join(t.TempDir(), "sub", "index.html")
	must.OK(t, IndexFile(file, "A campaign", runs))
	b, err := os.ReadFile(file)
	must.OK(t, err)
	page := string(b)
	for _, want := range []string{"1 run of 3 failed", `href="stale-read.html"`, "read/stale", "SEED=2"} {
		if !strings.Contains(page, want) {
			t.Errorf("the index lacks %s", want)
		}
	}
	if strings.Index(page, "stale-read") > strings.Index(page, "good-basic") {
		t.Error("the failed run does not come first")
	}
}
