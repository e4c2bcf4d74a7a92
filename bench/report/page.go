package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"

	"github.com/quorate/quorate/bench/plot"
)

//go:embed frame.html
var frame string

// Page is a page that needs nothing else: no scripts, no fonts, no network.
type Page struct {
	// Name is the window's, Heading the page's; Lines are below its head.
	Name, Heading string
	Head          *Head
	Lines         []string
	// Body is what the page's own template shows.
	Body any
	// Report is in the page for programs.
	Report any
}

// Template reads what a page has of its own, as two templates: "style" and "body".
func Template(own string) *template.Template {
	return template.Must(template.Must(template.New("frame").Parse(frame)).Parse(own))
}

// Write writes a page by a template of Template.
func (p Page) Write(w io.Writer, t *template.Template) error {
	shown := struct {
		Page
		Style template.CSS
	}{p, plot.Style}
	if err := t.ExecuteTemplate(w, "frame", shown); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}
