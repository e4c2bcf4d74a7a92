package report

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/quorate/quorate/bench/host"
)

// Head is what each report begins with.
type Head struct {
	// Schema names the form of the JSON. It changes when a field changes its meaning or goes; new
	// fields may come.
	Schema  string    `json:"schema"`
	Date    time.Time `json:"date"`
	Command string    `json:"command"`
	Commit  string    `json:"commit"` // of this program
	host.Machine
}

// NewHead is that of what is measured now, on this machine, with the nodes' data in dir.
func NewHead(schema, command, commit, dir string) Head {
	return Head{Schema: schema, Date: time.Now().UTC().Truncate(time.Second), Command: command, Commit: commit, Machine: host.ThisMachine(dir)}
}

// Title is the head in a line.
func (h *Head) Title() string {
	return fmt.Sprintf("%s · commit %s · %s", h.Date.Format(time.DateTime+" MST"), h.Commit, h.Line())
}

// WriteJSON writes a report for programs, and for people who look into it.
func WriteJSON(w io.Writer, report any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(report)
}
