package report

import (
	"embed"
	"fmt"
	"html/template"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/quorate/quorate/test/judges/check"
	"github.com/quorate/quorate/test/judges/history"
)

//go:embed page.html index.html style.css timeline.js
var files embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"style":    func() template.CSS { return template.CSS(file("style.css")) },
	"timeline": func() template.JS { return template.JS(file("timeline.js")) },
	"duration": duration,
	"colour":   func(i int) int { return i % 8 }, // of a kind of fault
}).ParseFS(files, "*.html"))

func file(name string) string {
	b, err := files.ReadFile(name)
	if err != nil {
		panic(err) // it is embedded
	}
	return string(b)
}

// duration prints a time for people: three digits are enough.
func duration(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(10 * time.Nanosecond).String()
}

// Write draws a run.
func Write(w io.Writer, h *history.History, v *check.Verdict) error {
	if err := templates.ExecuteTemplate(w, "page.html", newPage(h, v)); err != nil {
		return fmt.Errorf("draw %s: %w", h.Name, err)
	}
	return nil
}

// File draws a run into a file, whose directory it makes.
func File(name string, h *history.History, v *check.Verdict) error {
	return create(name, func(w io.Writer) error { return Write(w, h, v) })
}

// Run is a line of the index of a campaign.
type Run struct {
	Name    string
	Seed    uint64
	Verdict *check.Verdict // of Violations only the number is shown
	Link    string         // to its page, relative to the index; may be empty
	Note    string         // how to repeat it, for instance
}

// Failed reports whether a promise was broken.
func (r Run) Failed() bool { return !r.Verdict.OK() }

// WriteIndex draws a campaign: the failed runs first.
func WriteIndex(w io.Writer, title string, runs []Run) error {
	if err := templates.ExecuteTemplate(w, "index.html", newIndex(title, runs)); err != nil {
		return fmt.Errorf("draw %s: %w", title, err)
	}
	return nil
}

// IndexFile draws a campaign into a file.
func IndexFile(name, title string, runs []Run) error {
	return create(name, func(w io.Writer) error { return WriteIndex(w, title, runs) })
}

func create(name string, write func(io.Writer) error) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	f, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if err := write(f); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("report %s: %w", name, err)
	}
	return nil
}

// plural is for sentences with a number in them.
func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%s %ss", thousands(n), one)
}

func thousands(n int) string {
	s := fmt.Sprint(n)
	var b strings.Builder
	for i, r := range s {
		if i > 0 && (len(s)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// FaultCount is the number of faults in a run.
func (r Run) FaultCount() int {
	n := 0
	for _, k := range r.Verdict.Counts.Faults {
		n += k
	}
	return n
}
