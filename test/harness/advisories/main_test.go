package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
)

func day(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.DateOnly, text)
	must.OK(t, err)
	return at
}

// TestReport: only advisories of which a function is called count.
func TestReport(t *testing.T) {
	f, err := os.Open("testdata/report.json")
	must.OK(t, err)
	defer f.Close()
	got, err := parseReport(f)
	must.OK(t, err)
	want := &report{goVersion: "go1.26.8", reached: []reached{{
		id: "GO-2026-0001", summary: "A loop in http2", module: "stdlib", at: "v1.26.8", fixed: "v1.26.9",
		function: "net/http.Transport.RoundTrip", from: "example.com/here/hooks.Call",
	}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	for _, text := range []string{"", `{"config":`, `{"progress":{}}`} {
		if _, err := parseReport(strings.NewReader(text)); err == nil {
			t.Errorf("%q is taken for a report", text)
		}
	}
}

// TestAccepted: what lines of accepted.txt mean, and what is wrong with others.
func TestAccepted(t *testing.T) {
	got, err := parseAccepted("# comment\n\nGO-1 2027-01-31 - no such call\n\tGO-2  2027-02-28  go1.26.9  only by  clients\n")
	want := []acceptance{
		{"GO-1", day(t, "2027-01-31"), "", "no such call"},
		{"GO-2", day(t, "2027-02-28"), "go1.26.9", "only by clients"},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, q := range []struct{ text, want string }{
		{"GO-1 2027-01-31 -", "line 1: it must have an advisory, a day, a Go or -, and a reason"},
		{"# x\nGO-1 soon - x", `line 2: "soon" is no day, such as 2027-01-31`},
		{"GO-1 2027-01-31 1.26.9 x", `line 1: "1.26.9" is no Go, such as go1.26.9`},
		{"GO-1 2027-01-31 - x\nGO-1 2027-01-31 - y", "line 2: GO-1 is accepted twice"},
	} {
		if _, err := parseAccepted(q.text); err == nil || err.Error() != q.want {
			t.Errorf("%q: %v, want %s", q.text, err, q.want)
		}
	}
}

// TestAcceptedFile: the real file can be read.
func TestAcceptedFile(t *testing.T) {
	text, err := os.ReadFile("accepted.txt")
	must.OK(t, err)
	if _, err := parseAccepted(string(text)); err != nil {
		t.Error(err)
	}
}

// TestCompare: what fails the check.
func TestCompare(t *testing.T) {
	found := func(ids ...string) (all []reached) {
		for _, id := range ids {
			all = append(all, reached{id: id, summary: "A loop", module: "example.com/m", at: "v1.0.0", fixed: "v1.1.0", function: "m.F", from: "here.main"})
		}
		return all
	}
	const (
		unaccepted = "GO-1: A loop\n\texample.com/m v1.0.0, fixed in v1.1.0\n\tm.F is reached from here.main\n\tUpgrade the module or do not call it; if neither can be done now, accept it."
		over       = "GO-1: it was accepted until 2027-01-31, because: x\n\tUpgrade what is vulnerable, or find out whether the reason holds and set another day."
		unused     = "GO-1: it is accepted, and nothing reaches it any more\n\tDelete its line."
	)
	for _, q := range []struct {
		name     string
		found    []reached
		accepted string
		running  string
		least    string
		now      string
		want     string
	}{
		{name: "nothing"},
		{name: "reached", found: found("GO-1"), want: unaccepted},
		{name: "accepted", found: found("GO-1"), accepted: "GO-1 2027-01-31 - x"},
		{name: "on its last day", found: found("GO-1"), accepted: "GO-1 2027-01-31 - x", now: "2027-01-31"},
		{name: "on the day after", found: found("GO-1"), accepted: "GO-1 2027-01-31 - x", now: "2027-02-01", want: over},
		{name: "unused", accepted: "GO-1 2027-01-31 - x", want: unused},
		{name: "over and unused", accepted: "GO-1 2027-01-31 - x", now: "2027-02-01", want: over},
		{name: "another one is reached", found: found("GO-1"), accepted: "GO-2 2027-01-31 - x", want: unaccepted + "\n" + strings.ReplaceAll(unused, "GO-1", "GO-2")},
		{name: "this Go has not fixed it", accepted: "GO-1 2027-01-31 go1.26.9 x", want: unused},
		{name: "this Go has fixed it, an older one that may build has not", accepted: "GO-1 2027-01-31 go1.26.9 x", running: "go1.26.10"},
		{name: "all that may build have fixed it", accepted: "GO-1 2027-01-31 go1.26.9 x", running: "go1.26.10", least: "go1.26.9", want: unused},
		{name: "this Go has fixed it, and the day is over", accepted: "GO-1 2027-01-31 go1.26.9 x", running: "go1.26.10", now: "2027-02-01", want: over},
	} {
		t.Run(q.name, func(t *testing.T) {
			orElse := func(text, other string) string {
				if text == "" {
					return other
				}
				return text
			}
			accepted, err := parseAccepted(q.accepted)
			must.OK(t, err)
			r := &report{goVersion: orElse(q.running, "go1.26.8"), reached: q.found}
			got := strings.Join(compare(r, accepted, orElse(q.least, "go1.26.0"), day(t, orElse(q.now, "2026-12-01"))), "\n")
			if got != q.want {
				t.Errorf("got\n%s\nwant\n%s", got, q.want)
			}
		})
	}
}

// TestOldGo: who builds with a Go that is too old is told.
func TestOldGo(t *testing.T) {
	for _, q := range []struct {
		running, release string
		told             bool
	}{
		{"go1.26.8", "go1.26.10", true}, {"go1.26.10", "go1.26.10", false}, {"go1.27.0", "go1.26.10", false}, {"go1.26.8", "", false},
	} {
		if got := oldGo(q.running, q.release); (got != "") != q.told || q.told && !strings.Contains(got, q.running) {
			t.Errorf("%s of %s: %q", q.running, q.release, got)
		}
	}
}

// TestDatabase: the indexes name every advisory, and each module once for it.
func TestDatabase(t *testing.T) {
	dir := t.TempDir()
	must.OK(t, buildDatabase("testdata/osv", dir))
	for name, want := range map[string]string{
		"index/db.json": `{"modified":"2026-05-01T10:00:00Z"}`,
		"index/modules.json": `[{"path":"golang.org/x/net","vulns":[{"id":"GO-2026-0001","modified":"2026-03-01T10:00:00Z"},{"id":"GO-2026-0002","modified":"2026-05-01T10:00:00Z"}]},` +
			`{"path":"stdlib","vulns":[{"id":"GO-2026-0001","modified":"2026-03-01T10:00:00Z"}]}]`,
		"index/vulns.json": `[{"id":"GO-2026-0001","modified":"2026-03-01T10:00:00Z","aliases":["CVE-2026-1"]},{"id":"GO-2026-0002","modified":"2026-05-01T10:00:00Z"},` +
			`{"id":"GO-2026-0003","modified":"0001-01-01T00:00:00Z"}]`,
	} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || string(got) != want {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, got, want)
		}
	}
	for _, id := range []string{"GO-2026-0001", "GO-2026-0002", "GO-2026-0003"} {
		got, err := os.ReadFile(filepath.Join(dir, "ID", id+".json"))
		want, _ := os.ReadFile(filepath.Join("testdata/osv", id+".json"))
		if err != nil || string(got) != string(want) {
			t.Errorf("%s: %v\n%s", id, err, got)
		}
	}
}

// TestDatabaseOfNothing: what is no directory of advisories makes no database, in which nothing would be found.
func TestDatabaseOfNothing(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"empty": {}, "no JSON": {"GO-1.json": "{"}, "another name": {"GO-1.json": `{"id":"GO-2"}`},
	} {
		dir := t.TempDir()
		for file, text := range files {
			must.OK(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
		}
		if err := buildDatabase(dir, t.TempDir()); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
