package plot

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
)

//go:embed style.css
var style string

// Style is that of the pages that show drawings: colours by day and by night, cards,
// tables, and the classes that drawings use.
var Style = template.CSS(style) // #nosec G203: a file of ours

// WriteSVG writes a drawing as a file of its own, for pages that are not ours.
func WriteSVG(w io.Writer, drawing template.HTML) error {
	// The background is the card's: a page by day may show it to a reader by night.
	text := strings.Replace(string(drawing), "<svg ", `<svg xmlns="http://www.w3.org/2000/svg" font-family="system-ui, sans-serif" `, 1)
	text = strings.Replace(text, `style="`, `style="background: var(--card); `, 1)
	end := strings.IndexByte(text, '>') + 1
	_, err := fmt.Fprintf(w, "%s<style>%s</style>%s\n", text[:end], style, text[end:])
	return err
}
