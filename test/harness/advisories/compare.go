package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"go/version"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// report is what govulncheck has found.
type report struct {
	goVersion string // whose standard library was looked at
	reached   []reached
}

// reached is an advisory about a function that the module can call.
type reached struct {
	id, summary    string
	module, at     string
	fixed          string // the version that fixes it; empty: none
	function, from string // the vulnerable one, and the first of ours that leads there
}

func (r reached) String() string {
	fixed := "no version fixes it"
	if r.fixed != "" {
		fixed = "fixed in " + r.fixed
	}
	return fmt.Sprintf("%s: %s\n\t%s %s, %s\n\t%s is reached from %s", r.id, r.summary, r.module, r.at, fixed, r.function, r.from)
}

// frame is a function of a trace.
type frame struct{ Module, Version, Package, Function, Receiver string }

func (f frame) String() string {
	if f.Receiver != "" {
		return f.Package + "." + strings.TrimPrefix(f.Receiver, "*") + "." + f.Function
	}
	return f.Package + "." + f.Function
}

// parseReport reads govulncheck's JSON. Findings whose traces have no function are about modules and packages of which
// nothing vulnerable is called. Of several traces of an advisory the first one is kept.
func parseReport(in io.Reader) (*report, error) {
	r := &report{}
	summaries, all := map[string]string{}, map[string]reached{}
	d := json.NewDecoder(in)
	for {
		var message struct {
			Config *struct {
				GoVersion string `json:"go_version"`
			}
			OSV     *struct{ ID, Summary string }
			Finding *struct {
				OSV          string
				FixedVersion string `json:"fixed_version"`
				Trace        []frame
			}
		}
		if err := d.Decode(&message); err == io.EOF {
			break
		} else if err != nil {
			return nil, err
		}
		if c := message.Config; c != nil {
			r.goVersion = c.GoVersion
		}
		if o := message.OSV; o != nil {
			summaries[o.ID] = o.Summary
		}
		f := message.Finding
		if f == nil || len(f.Trace) == 0 || f.Trace[0].Function == "" {
			continue
		}
		if _, known := all[f.OSV]; known {
			continue
		}
		to := f.Trace[0]
		all[f.OSV] = reached{id: f.OSV, module: to.Module, at: to.Version, fixed: f.FixedVersion, function: to.String(), from: f.Trace[len(f.Trace)-1].String()}
	}
	if r.goVersion == "" {
		return nil, errors.New("it has not said which Go it has looked at")
	}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		found := all[id]
		found.summary = summaries[id]
		r.reached = append(r.reached, found)
	}
	return r, nil
}

// acceptance is a line of accepted.txt.
type acceptance struct {
	id     string
	until  time.Time
	below  string // the Go that fixes it, as go1.26.9; empty: it is not about the standard library
	reason string
}

// parseAccepted reads lines of an advisory, the last day on which it is accepted, the Go that fixes it or "-", and the
// reason. Lines that begin with # are comments.
func parseAccepted(text string) (all []acceptance, err error) {
	seen := map[string]bool{}
	lines := bufio.NewScanner(strings.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) < 4 {
			return nil, fmt.Errorf("line %d: it must have an advisory, a day, a Go or -, and a reason", n)
		}
		a := acceptance{id: fields[0], reason: strings.Join(fields[3:], " ")}
		if a.until, err = time.Parse(time.DateOnly, fields[1]); err != nil {
			return nil, fmt.Errorf("line %d: %q is no day, such as 2027-01-31", n, fields[1])
		}
		if fields[2] != "-" {
			if a.below = fields[2]; !version.IsValid(a.below) {
				return nil, fmt.Errorf("line %d: %q is no Go, such as go1.26.9", n, a.below)
			}
		}
		if seen[a.id] {
			return nil, fmt.Errorf("line %d: %s is accepted twice", n, a.id)
		}
		seen[a.id] = true
		all = append(all, a)
	}
	return all, lines.Err()
}

// compare returns what is wrong: advisories that are reached and not accepted, and lines of accepted.txt that are over or that
// nothing needs. least is the oldest Go that go.mod allows: a line about the standard library is needed as long as that
// one has the mistake, whatever Go has looked.
func compare(r *report, accepted []acceptance, least string, now time.Time) (wrong []string) {
	lines := map[string]acceptance{}
	for _, a := range accepted {
		lines[a.id] = a
	}
	found := map[string]bool{}
	for _, f := range r.reached {
		found[f.id] = true
		if _, ok := lines[f.id]; !ok {
			wrong = append(wrong, f.String()+"\n\tUpgrade the module or do not call it; if neither can be done now, accept it.")
		}
	}
	for _, a := range accepted {
		switch fixed := a.below != "" && version.Compare(r.goVersion, a.below) >= 0; {
		case !now.Before(a.until.AddDate(0, 0, 1)):
			wrong = append(wrong, fmt.Sprintf("%s: it was accepted until %s, because: %s\n\tUpgrade what is vulnerable, or find out whether the reason holds and set another day.",
				a.id, a.until.Format(time.DateOnly), a.reason))
		case found[a.id]:
		case fixed && version.Compare(least, a.below) < 0:
		default:
			wrong = append(wrong, a.id+": it is accepted, and nothing reaches it any more\n\tDelete its line.")
		}
	}
	return wrong
}

// oldGo is a notice when a Go is older than the one that releases are built with.
func oldGo(running, release string) string {
	if release == "" || version.Compare(running, release) >= 0 {
		return ""
	}
	return fmt.Sprintf("advisories: this is %s. Build releases with %s or later: it fixes advisories about the standard library that are accepted here.", running, release)
}
