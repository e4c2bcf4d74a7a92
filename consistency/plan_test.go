package consistency

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
)

func TestGetTable(t *testing.T)  { runTable(t, "get.txt", PlanGet, nil) }
func TestListTable(t *testing.T) { runTable(t, "list.txt", PlanList, listCells()) }
func TestWatchTable(t *testing.T) {
	runTable(t, "watch.txt", PlanWatch, watchCells())
}

// TestNothingIsNoKind: what nobody has decided is no mode and no kind of refusal.
func TestNothingIsNoKind(t *testing.T) {
	if got := fmt.Sprint(Plan{}.Mode, Refusal{}.Kind); got != "Mode(0) RefusalKind(0)" {
		t.Error(got)
	}
}

// row is one line of a table.
type row struct {
	line   int
	params string // as written
	want   string
}

func runTable(t *testing.T, file string, plan func(Params) (Plan, error), cells []string) {
	missing := map[string]bool{}
	for _, c := range cells {
		missing[c] = true
	}
	for _, r := range readTable(t, file) {
		p, err := parseParams(r.params)
		if err != nil {
			t.Fatalf("%s:%d: %v", file, r.line, err)
		}
		delete(missing, describe(p))
		got, err := plan(p)
		if text := outcome(t, got, err); text != r.want {
			t.Errorf("%s:%d: %s\n got %s\nwant %s", file, r.line, r.params, text, r.want)
		}
	}
	for c := range missing {
		t.Errorf("%s: no row for the cell %q", file, c)
	}
}

// readTable refuses whatever it does not understand: a row twice, a row without
// an arrow, a block that begins without the sentence it implements.
func readTable(t *testing.T, file string) []row {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", file))
	must.OK(t, err)
	defer func() { _ = f.Close() }()
	var rows []row
	seen := map[string]int{}
	explained := false
	sc := bufio.NewScanner(f)
	for n := 1; sc.Scan(); n++ {
		line := sc.Text()
		switch {
		case line == "":
			explained = false
			continue
		case strings.HasPrefix(line, "# "), line == "#":
			explained = true
			continue
		}
		params, want, ok := strings.Cut(" "+line, " => ")
		params = strings.TrimPrefix(params, " ")
		if !ok || !explained {
			t.Fatalf("%s:%d: a row needs ' => ' and a sentence above its block: %q", file, n, line)
		}
		if before := seen[params]; before != 0 {
			t.Fatalf("%s:%d: the same parameters as in line %d", file, n, before)
		}
		seen[params] = n
		rows = append(rows, row{line: n, params: params, want: want})
	}
	must.OK(t, sc.Err())
	if len(rows) == 0 {
		t.Fatalf("%s: no rows", file)
	}
	return rows
}

func parseParams(s string) (Params, error) {
	var p Params
	for _, w := range strings.Fields(s) {
		key, value, _ := strings.Cut(w, "=")
		var err error
		switch key {
		case "rv":
			p.ResourceVersion = value
		case "match":
			p.Match = value
		case "limit":
			p.Limit, err = strconv.ParseInt(value, 10, 64)
		case "continue":
			p.Continue, err = parseToken(value)
		case "sie":
			var b bool
			b, err = strconv.ParseBool(value)
			p.SendInitialEvents = &b
		case "bookmarks":
			p.AllowBookmarks = true
		case "single":
			p.SingleName = true
		case "stale":
			p.MaxStaleness = value
		default:
			err = errors.New("unknown word")
		}
		if err != nil {
			return Params{}, fmt.Errorf("%q: %w", w, err)
		}
	}
	return p, nil
}

// parseToken takes 5:ns/a, latest:ns/a or raw:bytes.
func parseToken(s string) (string, error) {
	rv, key, _ := strings.Cut(s, ":")
	switch rv {
	case "raw":
		return key, nil
	case "latest":
		return After(key, 1).AtLatest().Encode(), nil
	}
	n, err := strconv.ParseUint(rv, 10, 64)
	return After(key, proto.Revision(n)).Encode(), err
}

// outcome writes a plan or a refusal the way the tables do.
func outcome(t *testing.T, p Plan, err error) string {
	t.Helper()
	if err != nil {
		var r *Refusal
		if !errors.As(err, &r) {
			t.Fatalf("an error that is no Refusal: %v", err)
		}
		if r.Kind == BadRequest {
			if len(r.Fields) != 0 {
				t.Errorf("a 400 has causes: %v", r.Fields)
			}
			return "400 " + r.Message
		}
		text, ok := strings.CutPrefix(r.Message, `ListOptions.meta.k8s.io "" is invalid: `)
		if !ok || r.Kind != Invalid {
			t.Errorf("%v %q", r.Kind, r.Message)
		}
		checkCauses(t, text, r.Fields)
		return "422 " + text
	}
	out := p.Mode.String()
	if p.Revision != 0 {
		out += " " + p.Revision.String()
	}
	if p.Limit != 0 {
		out += fmt.Sprintf(" limit=%d", p.Limit)
	}
	if p.Token != nil {
		out += " from=" + strings.TrimSuffix(p.Token.Start, "\x00")
	}
	if p.InitialEvents {
		out += " initial"
	}
	if p.EndBookmark {
		out += " end"
	}
	if p.StartAfter != 0 {
		out += " after=" + p.StartAfter.String()
	}
	if p.MaxStaleness != 0 {
		out += " stale=" + p.MaxStaleness.String()
	}
	return out
}

// checkCauses verifies that a 422's causes say what its message says.
func checkCauses(t *testing.T, text string, fields []FieldError) {
	t.Helper()
	var all []string
	for _, f := range fields {
		all = append(all, f.Field+": "+f.Message)
		want := map[string]string{"Forbidden": TypeForbidden, "Unsupported value": TypeNotSupported}
		if head, _, _ := strings.Cut(f.Message, ":"); want[head] != f.Type || f.Type == "" {
			t.Errorf("a cause of type %q says %q", f.Type, f.Message)
		}
	}
	joined := strings.Join(all, ", ")
	if len(all) > 1 {
		joined = "[" + joined + "]"
	}
	if joined != text {
		t.Errorf("causes say %q, the message %q", joined, text)
	}
}

// describe is the canonical form of the parameters that span the cells.
func describe(p Params) string {
	if p.SingleName || p.AllowBookmarks || p.MaxStaleness != "" {
		return "beside the cells"
	}
	sie := "-"
	if p.SendInitialEvents != nil {
		sie = strconv.FormatBool(*p.SendInitialEvents)
	}
	return fmt.Sprintf("rv=%s match=%s limit=%d continue=%t sie=%s", p.ResourceVersion, p.Match, p.Limit, p.Continue != "", sie)
}

func listCells() (cells []string) {
	for _, rv := range []string{"", "0", "7"} {
		for _, match := range []string{"", MatchExact, MatchNotOlderThan} {
			for _, limit := range []int64{0, 10} {
				for _, token := range []string{"", "t"} {
					cells = append(cells, describe(Params{ResourceVersion: rv, Match: match, Limit: limit, Continue: token}))
				}
			}
		}
	}
	return cells
}

func watchCells() (cells []string) {
	yes, no := true, false
	for _, rv := range []string{"", "0", "7"} {
		for _, match := range []string{"", MatchExact, MatchNotOlderThan} {
			for _, sie := range []*bool{nil, &yes, &no} {
				cells = append(cells, describe(Params{ResourceVersion: rv, Match: match, SendInitialEvents: sie}))
			}
		}
	}
	return cells
}
