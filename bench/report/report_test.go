package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/quorate/quorate/bench/measure"
	"github.com/quorate/quorate/bench/plot"
	"github.com/quorate/quorate/bench/report/reporttest"
	"github.com/quorate/quorate/internal/must"
)

// everything has a block of each sort, with what others have written in all of them.
func everything(t *testing.T) *Doc {
	h := NewHead("s/v1", "bench '<script>&'", "abc", t.TempDir())
	table := Table{Head: []string{"row", "n"}, Rows: []Row{{First: true, Class: "c-any", Cells: []string{"<b>x</b>", "0"}, Note: "<b>n</b>"}, {Sub: true, Cells: []string{"part", "12"}}, {First: true, Cells: []string{"y", "3"}}}}
	figure := []Figure{{Title: "<b>f</b>", Figure: plot.Chart{Title: "<b>c</b>", Width: 360, Height: 200, Notes: []string{"<b>note</b>"}}.Draw()}}
	return &Doc{Name: "n", Heading: "<b>h</b>", Head: &h, Lines: []string{"<b>l</b>"}, Report: h, Method: "<b>m</b>", Blocks: []Block{
		{Verdicts: []Verdict{{Name: "kept", OK: true, Promise: true, Measured: "<b>v</b>"}, {Name: "goal"}, {Name: "broken", Promise: true}}, Details: []string{"<b>d</b>"}},
		{Title: "T", Heading: "H", Note: "N", Table: table, Texts: []string{"<b>t</b>"}, Failures: []string{"<b>e</b>"}, Cards: []Card{{Title: "<b>k</b>"}}, Legend: []Colour{{"c-any", "<b>c</b>"}}, Figures: figure, Columns: "two"},
		{Fold: "folded", Open: true, Figures: figure, Texts: []string{"inside"}}, {Title: "page alone", Page: true, Texts: []string{"p"}}, {Title: "terminal alone", Terminal: true, Texts: []string{"t"}},
	}}
}

// TestDoc: the page has all that is for it, and what others have written is text in it; a terminal has the rest,
// the verdicts last.
func TestDoc(t *testing.T) {
	d := everything(t)
	var page, text, raw bytes.Buffer
	must.OK(t, d.WriteHTML(&page))
	reporttest.Page(t, page.String(), 2, "<b>x", "<b>l", "<b>h", "<b>t", "<b>e", "<b>k", "<b>c", "<b>d", "<b>f", "<b>n", "<b>m", "<b>v", "'<script>", "terminal alone")
	for _, want := range []string{"<title>Quorate: n</title>", "&lt;b&gt;l&lt;/b&gt;", "commit abc", "<details open><summary>folded</summary>", "<h2>page alone</h2>", `<td class="zero">0</td>`, `<span class="c-any"><i></i></span>`} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("no %q in\n%s", want, page.String())
		}
	}
	must.OK(t, d.WriteTable(&text))
	_, shown, _ := strings.Cut(text.String(), "\n\n")
	if want := `<b>l</b>

T. H. N

       row   n
  <b>x</b>   0
      part  12

         y   3
<b>x</b>: <b>n</b>

<b>e</b>
<b>t</b>

terminal alone
t

ok      kept: <b>v</b>
missed  goal: 
BROKEN  broken: 
        <b>d</b>
`; shown != want {
		t.Errorf("%q\nwant %q", shown, want)
	}
	if err := WriteJSON(&raw, d.Head); err != nil || !strings.Contains(raw.String(), `"schema": "s/v1"`) || !strings.Contains(raw.String(), `"kernel":`) {
		t.Errorf("%v: %s", err, raw.String())
	}
}

// TestWords: what is counted and what differs is told in words that fit.
func TestWords(t *testing.T) {
	for n, want := range map[int64]string{0: "0 versions", 1: "1 version", 2: "2 versions"} {
		if got := Count(n, "version"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for d, want := range map[float64]string{41.9: "+41.9", -41.9: "-41.9", 0: "+0.00", -0.001: "+0.00", -200: "-200"} {
		if got := Signed(d, measure.Ms); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
