package plot

import (
	_ "embed"
	"html/template"
)

//go:embed style.css
var style string

// Style is that of the pages that show drawings: colours by day and by night, cards,
// tables, and the classes that drawings use.
var Style = template.CSS(style) // #nosec G203: a file of ours
