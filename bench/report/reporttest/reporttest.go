package reporttest

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

var update = flag.Bool("update", false, "rewrite testdata/schema.txt")

// Schema checks that the JSON of a report with everything in it has the fields of
// testdata/schema.txt: readers find what they found before. A field that is gone or has another
// type needs another schema.
func Schema(t *testing.T, schema string, report any) {
	t.Helper()
	raw, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	var tree any
	if err := json.Unmarshal(raw, &tree); err != nil {
		t.Fatal(err)
	}
	fields := map[string]bool{}
	walk(tree, "", fields)
	var lines []string
	for f := range fields {
		lines = append(lines, f)
	}
	slices.Sort(lines)
	got := schema + "\n" + strings.Join(lines, "\n") + "\n"
	const file = "testdata/schema.txt"
	if *update {
		if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(file, []byte(got), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the fields differ from %s (run with -update and read the difference):\n%s", file, got)
	}
}

func walk(v any, path string, out map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			walk(x, path+"."+k, out)
		}
	case []any:
		for _, x := range v {
			walk(x, path+"[]", out)
		}
	default:
		out[fmt.Sprintf("%s %T", strings.TrimPrefix(path, "."), v)] = true
	}
}

// outside are the ways in which a page asks for something that is not in it.
var outside = regexp.MustCompile(`(?i)https?:|//[a-z]|@import|url\(|\bsrc\s*=|\bhref\s*=|<link|<iframe|<script(?:\s|>)(?:[^>]*)>`)

// Page checks that a page has a number of figures, shows numbers, and neither what somebody else
// wrote as markup nor anything of the network's. It returns the report in it.
func Page(t *testing.T, page string, figures int, foreign ...string) (report []byte) {
	t.Helper()
	if n := strings.Count(page, "<svg"); n != figures {
		t.Errorf("%d figures, want %d", n, figures)
	}
	shown, text, ok := strings.Cut(page, `<script type="application/json" id="report">`)
	text, rest, closed := strings.Cut(text, "</script>")
	if !ok || !closed || !strings.HasSuffix(rest, "</html>") {
		t.Fatalf("no report, or no end: %q", rest)
	}
	for _, bad := range append(foreign, "NaN", "Inf", "ZgotmplZ") {
		if strings.Contains(shown, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	for _, found := range outside.FindAllString(shown, -1) {
		t.Errorf("the page has %q", found)
	}
	Balanced(t, page)
	narrow(t, page)
	return []byte(text)
}

var (
	viewBox = regexp.MustCompile(`<div class="scroll"><svg viewBox="0 0 ([0-9.]+) [0-9.]+" style="min-width: ([0-9]+)px"`)
	minmax  = regexp.MustCompile(`minmax\((min\([^)]*\)|[^,]*),`)
)

// narrow fails for a page that a phone cuts off or shrinks: each figure has a box of its own that scrolls, in which
// it keeps four fifths of its size (its letters are of 11 pixels), and no column is wider than the screen.
func narrow(t *testing.T, page string) {
	t.Helper()
	found := viewBox.FindAllStringSubmatch(page, -1)
	if n := strings.Count(page, "<svg"); len(found) != n {
		t.Errorf("%d of %d figures are in boxes that scroll", len(found), n)
	}
	for _, f := range found {
		width, _ := strconv.ParseFloat(f[1], 64)
		if least, _ := strconv.ParseFloat(f[2], 64); least < 0.79*width || width > 900 {
			t.Errorf("a figure of %g units may shrink to %g pixels", width, least)
		}
	}
	for _, f := range minmax.FindAllStringSubmatch(page, -1) {
		if !strings.HasPrefix(f[1], "min(") {
			t.Errorf("a column is at least %s wide, whatever the screen", f[1])
		}
	}
}

// Balanced fails for a page whose elements do not close in order.
func Balanced(t *testing.T, page string) {
	t.Helper()
	void := map[string]bool{"meta": true, "br": true}
	var open []string
	z := html.NewTokenizer(strings.NewReader(page))
	for {
		switch z.Next() {
		case html.ErrorToken:
			if z.Err() != io.EOF || len(open) > 0 {
				t.Errorf("%v, open: %v", z.Err(), open)
			}
			return
		case html.StartTagToken:
			if name, _ := z.TagName(); !void[string(name)] {
				open = append(open, string(name))
			}
		case html.EndTagToken:
			name, _ := z.TagName()
			if len(open) == 0 || open[len(open)-1] != string(name) {
				t.Fatalf("</%s> closes %v", name, open)
			}
			open = open[:len(open)-1]
		}
	}
}
