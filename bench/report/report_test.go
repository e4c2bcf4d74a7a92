package report

import (
	"bytes"
	"testing"

	"github.com/quorate/quorate/bench/report/reporttest"
)

// TestPage: the frame and a page's own templates are one page, and what others have written is text in it.
func TestPage(t *testing.T) {
	own := Template(`{{define "style"}} p { margin: 0; }{{end}}{{define "body"}}<p>{{.}}</p>{{end}}`)
	h := NewHead("s/v1", "bench '<script>&'", "abc", t.TempDir())
	var buf bytes.Buffer
	if err := (Page{Name: "n", Heading: "<b>h</b>", Head: &h, Lines: []string{"<b>l</b>"}, Body: "<b>x</b>", Report: h}).Write(&buf, own); err != nil {
		t.Fatal(err)
	}
	reporttest.Page(t, buf.String(), 0, "<b>", "'<script>")
	for _, want := range []string{"<title>Quorate: n</title>", "p { margin: 0; }", "&lt;b&gt;l&lt;/b&gt;", "commit abc", "<p>&lt;b&gt;x&lt;/b&gt;</p>"} {
		if !bytes.Contains(buf.Bytes(), []byte(want)) {
			t.Errorf("no %q in\n%s", want, buf.String())
		}
	}
	buf.Reset()
	if err := WriteJSON(&buf, h); err != nil || !bytes.Contains(buf.Bytes(), []byte(`"schema": "s/v1"`)) || !bytes.Contains(buf.Bytes(), []byte(`"kernel":`)) {
		t.Errorf("%v: %s", err, buf.String())
	}
}
