package reads

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quorate/quorate/test/harness/cluster"
)

// verify holds all replies against their outcomes. The ledger is closed.
func (m *matrix) verify() {
	m.t.Helper()
	wrong, stale := 0, 0
	slowest := map[string]time.Duration{}
	byOutcome := map[string][]time.Duration{}
	for _, rep := range m.replies {
		outcome := m.outcomes[rep.cell]
		if err := m.check(rep, outcome); err != nil {
			if wrong++; wrong <= 20 {
				m.t.Errorf("%s: %s (%s): %v", m.node.Name, rep.cell, rep.asked, err)
			}
		}
		group := m.group(rep, outcome)
		byOutcome[group] = append(byOutcome[group], rep.took)
		slowest[group] = max(slowest[group], rep.took)
		if strings.HasPrefix(outcome, "Any") && cluster.Revision(m.t, rep.header.Get("X-Quorate-Index")) < rep.acked {
			stale++
		}
	}
	if wrong > 0 {
		m.t.Errorf("%d of %d answers are wrong", wrong, len(m.replies))
	}
	if m.delay > 0 && stale == 0 {
		m.t.Error("the node that was to be behind never was")
	}
	m.t.Logf("%s: %d answers, of which %d from a state behind what was acknowledged", m.node.Name, len(m.replies), stale)
	for _, group := range slices.Sorted(maps.Keys(byOutcome)) {
		slices.Sort(byOutcome[group])
		m.t.Logf("  %-28s %5d   median %8s   slowest %8s", group, len(byOutcome[group]),
			byOutcome[group][len(byOutcome[group])/2].Round(10*time.Microsecond), slowest[group].Round(10*time.Microsecond))
	}
	// A future revision is refused when the leader says so, not after the three seconds
	// that it takes when nobody can say; Any waits for nobody. This machine may be busy:
	// what a calm one needs is in the log. Watches are left out: all of them begin at
	// once, and wait for the client more than for the server.
	const noWait = 2500 * time.Millisecond
	for _, group := range []string{"list 504", "get 504", "get Any", "list Any all"} {
		if took := byOutcome[group]; len(took) == 0 || took[len(took)/2] > noWait {
			m.t.Errorf("%s: the median is above %s: %v", group, noWait, took)
		}
	}
}

func (m *matrix) group(rep *reply, outcome string) string {
	if code, _ := refusalOf(outcome); code >= 400 {
		outcome = fmt.Sprint(code)
	}
	return rep.cell.verb + " " + outcome
}

func (m *matrix) check(rep *reply, outcome string) error {
	if got := rep.header.Get("X-Quorate-Node"); got != m.node.Name {
		return fmt.Errorf("X-Quorate-Node is %q", got)
	}
	code, text := refusalOf(outcome)
	switch {
	case strings.HasPrefix(outcome, "stream "):
		return m.checkStreamRefusal(rep, code, text)
	case code >= 400:
		if rep.code != code {
			return fmt.Errorf("code %d, want %d: %s", rep.code, code, rep.body)
		}
		refused, err := parseRefusal(&http.Response{StatusCode: rep.code, Header: rep.header}, rep.body)
		if err != nil {
			return err
		}
		return m.checkRefusal(rep, refused, code, text)
	case code != 0:
		if rep.code != code {
			return fmt.Errorf("code %d, want %d: %s", rep.code, code, rep.body)
		}
		return nil
	case rep.code != http.StatusOK:
		return fmt.Errorf("code %d, want %s: %s", rep.code, outcome, rep.body)
	}
	mode, rest, _ := strings.Cut(outcome, " ")
	switch rep.cell.verb {
	case "get":
		return m.checkGet(rep, mode)
	case "list":
		return m.checkList(rep, mode, rest == "all")
	}
	return m.checkWatch(rep, mode, rest)
}

// checkMode says whether a state at a revision is what a mode promises.
func (m *matrix) checkMode(rep *reply, mode string, at uint64) error {
	asked, _ := strconv.ParseUint(rep.asked, 10, 64)
	staleness := rep.header.Get("X-Quorate-Staleness")
	if (mode == "Any") != (staleness != "") {
		return fmt.Errorf("X-Quorate-Staleness is %q", staleness)
	}
	ok := true
	switch mode {
	case "MostRecent", "Latest":
		ok, asked = at >= rep.acked, rep.acked
	case "NotOlderThan":
		ok = at >= asked
	case "Exact":
		ok = at == asked
	case "Token":
		ok, asked = at == m.from, m.from
	case "Any":
		ms, err := strconv.ParseInt(staleness, 10, 64)
		if err != nil {
			return fmt.Errorf("X-Quorate-Staleness is %q", staleness)
		}
		// What had been acknowledged before that time is in the state. The header is
		// in whole milliseconds.
		asked = m.ledger.ackedBy(rep.sent.Add(-time.Duration(ms+1) * time.Millisecond))
		ok = at >= asked
	default:
		return fmt.Errorf("no mode %q", mode)
	}
	if !ok {
		return fmt.Errorf("%s from the state at %d, want %d", mode, at, asked)
	}
	return nil
}

func (m *matrix) checkGet(rep *reply, mode string) error {
	var o struct {
		Metadata struct{ Name, ResourceVersion string }
	}
	if err := json.Unmarshal(rep.body, &o); err != nil {
		return err
	}
	at := cluster.Revision(m.t, rep.header.Get("X-Quorate-Index"))
	if got := o.Metadata.Name + "@" + o.Metadata.ResourceVersion; !slices.Contains(m.ledger.at(at), got) {
		return fmt.Errorf("%s is not what was there at %d: %v", got, at, m.ledger.at(at))
	}
	return m.checkMode(rep, mode, at)
}

func (m *matrix) checkList(rep *reply, mode string, all bool) error {
	var l listed
	if err := json.Unmarshal(rep.body, &l); err != nil {
		return err
	}
	at := l.revision(m.t)
	if index := rep.header.Get("X-Quorate-Index"); index != l.Metadata.ResourceVersion || l.Kind != "ConfigMapList" {
		return fmt.Errorf("X-Quorate-Index is %s, the %s is of %d", index, l.Kind, at)
	}
	if err := m.checkMode(rep, mode, at); err != nil {
		return err
	}
	want := m.ledger.at(at)
	if mode == "Token" || mode == "Latest" {
		want = slices.DeleteFunc(want, func(s string) bool { return s[:strings.IndexByte(s, '@')] <= m.start })
	}
	return checkPage(m.t, &l, want, rep.cell.limit == "2" && !all)
}

// checkPage compares a page of at most two with all that there is from its
// beginning on.
func checkPage(t interface{ Helper() }, l *listed, want []string, limited bool) error {
	t.Helper()
	rest := 0
	if limited && len(want) > 2 {
		rest = len(want) - 2
		want = want[:2]
	}
	if got := l.names(); !slices.Equal(got, want) {
		return fmt.Errorf("the list is %v, want %v", got, want)
	}
	remaining := l.Metadata.RemainingItemCount
	switch {
	case rest == 0 && (l.Metadata.Continue != "" || remaining != nil):
		return fmt.Errorf("the last page has a token or a count: %+v", l.Metadata)
	case rest > 0 && (l.Metadata.Continue == "" || remaining == nil || *remaining != int64(rest)):
		return fmt.Errorf("%d remain, the page says %+v", rest, l.Metadata)
	}
	return nil
}

// checkRefusal compares a Status with what upstream says in this case.
func (m *matrix) checkRefusal(rep *reply, r refusal, code int, text string) error {
	reasons := map[int]string{400: "BadRequest", 409: "Conflict", 410: "Expired", 422: "Invalid", 504: "Timeout"}
	if string(r.Reason) != reasons[code] || int(r.Code) != code {
		return fmt.Errorf("%d %s, want %d %s", r.Code, r.Reason, code, reasons[code])
	}
	pattern := regexp.QuoteMeta(strings.ReplaceAll(text, "{rv}", rep.asked))
	pattern = strings.ReplaceAll(pattern, `\{n\}`, `(\d+)`)
	if code != 409 {
		pattern = "^" + pattern + "$"
	}
	found := regexp.MustCompile(pattern).FindStringSubmatch(r.Message)
	if found == nil {
		return fmt.Errorf("%q, want %q", r.Message, text)
	}
	switch {
	case code == 504:
		if current := cluster.Revision(m.t, found[1]); current < rep.acked || current >= m.future {
			return fmt.Errorf("%q, but %d was acknowledged", r.Message, rep.acked)
		}
		if d := r.Details; d == nil || d.RetryAfterSeconds != 1 || len(d.Causes) != 1 ||
			d.Causes[0].Type != "ResourceVersionTooLarge" || d.Causes[0].Message != "Too large resource version" {
			return fmt.Errorf("the details are %+v", r.Details)
		}
	case code == 422:
		if d := r.Details; d == nil || d.Group != "meta.k8s.io" || d.Kind != "ListOptions" || len(d.Causes) == 0 {
			return fmt.Errorf("the details are %+v", r.Details)
		}
	case code == 410 && rep.cell.token == "expired" && rep.cell.verb != "watch":
		if got, want := r.ListMeta.Continue, encodeToken(-1, m.ledger.namespace+"/"+m.start+"\x00"); got != want {
			return fmt.Errorf("the token to go on with is %q, want %q", got, want)
		}
	case code != 409 && r.Details != nil:
		return fmt.Errorf("there are details: %+v", r.Details)
	}
	return nil
}

func (m *matrix) checkStreamRefusal(rep *reply, code int, text string) error {
	if rep.code != http.StatusOK || len(rep.events) != 1 || rep.events[0].Type != "ERROR" {
		return fmt.Errorf("code %d, %d events: %s", rep.code, len(rep.events), rep.body)
	}
	var r refusal
	if err := json.Unmarshal(rep.events[0].Object, &r.Status); err != nil {
		return err
	}
	r.http = code
	if r.Details != nil {
		r.retryAfter = fmt.Sprint(r.Details.RetryAfterSeconds)
	}
	if err := r.check(); err != nil {
		return err
	}
	return m.checkRefusal(rep, r, code, text)
}

// checkWatch looks for a revision such that the stream is what a watch shows that
// begins there, and that is as fresh as the mode promises.
func (m *matrix) checkWatch(rep *reply, mode, begin string) error {
	events, bookmark, err := m.events(rep)
	if err != nil {
		return err
	}
	initial := begin == "initial"
	if (bookmark != 0) != (initial && rep.cell.bookmarks == "true") {
		return fmt.Errorf("the bookmark that ends the initial events is at %d", bookmark)
	}
	if mode == "after" {
		asked, _ := strconv.ParseUint(rep.asked, 10, 64)
		return m.checkFrom(events, asked, false)
	}
	// Nothing happens between two events, so each begins a stretch of revisions
	// that look the same.
	var reasons []string
	candidates := []uint64{bookmark}
	if bookmark == 0 {
		index := cluster.Revision(m.t, rep.header.Get("X-Quorate-Index"))
		candidates = append([]uint64{index}, m.stretches(index)...)
	}
	for _, at := range candidates {
		err := m.checkMode(rep, mode, at)
		if err == nil {
			err = m.checkFrom(events, at, initial)
		}
		if err == nil {
			return nil
		}
		reasons = append(reasons, err.Error())
	}
	return fmt.Errorf("no state explains the stream: %.300s", strings.Join(reasons, "; "))
}

// stretches returns the revisions of the events from one on.
func (m *matrix) stretches(from uint64) (revisions []uint64) {
	for _, e := range m.ledger.after(from) {
		revisions = append(revisions, cluster.Revision(m.t, e.ResourceVersion))
	}
	return revisions
}

// events reads a stream's events and where the bookmark behind the initial ones
// was; it is taken out.
func (m *matrix) events(rep *reply) (events []cluster.Event, bookmark uint64, err error) {
	for i, raw := range rep.events {
		var o struct {
			Kind, APIVersion string
			Metadata         struct {
				Name, ResourceVersion string
				Annotations           map[string]string
			}
		}
		if err := json.Unmarshal(raw.Object, &o); err != nil {
			return nil, 0, err
		}
		if o.Kind != "ConfigMap" || o.APIVersion != "v1" {
			return nil, 0, fmt.Errorf("event %d is of a %s %s", i, o.APIVersion, o.Kind)
		}
		if raw.Type != "BOOKMARK" {
			events = append(events, cluster.Event{Type: raw.Type, Name: o.Metadata.Name, ResourceVersion: o.Metadata.ResourceVersion})
			continue
		}
		if o.Metadata.Annotations["k8s.io/initial-events-end"] != "true" {
			continue
		}
		bookmark = cluster.Revision(m.t, o.Metadata.ResourceVersion)
		if n := len(m.ledger.at(bookmark)); n != i {
			return nil, 0, fmt.Errorf("the bookmark at %d came after %d events, %d objects were there", bookmark, i, n)
		}
	}
	return events, bookmark, nil
}

// checkFrom compares a stream with one that begins at a revision.
func (m *matrix) checkFrom(events []cluster.Event, at uint64, initial bool) error {
	if initial {
		want := m.ledger.at(at)
		if len(events) < len(want) {
			return fmt.Errorf("from %d: %d initial events of %d", at, len(events), len(want))
		}
		var got []string
		for _, e := range events[:len(want)] {
			if e.Type != "ADDED" {
				return fmt.Errorf("from %d: %+v among the initial events", at, e)
			}
			got = append(got, e.Name+"@"+e.ResourceVersion)
		}
		slices.SortFunc(got, func(a, b string) int {
			return strings.Compare(a[:strings.IndexByte(a, '@')], b[:strings.IndexByte(b, '@')])
		})
		if !slices.Equal(got, want) {
			return fmt.Errorf("from %d: the initial events are %v, want %v", at, got, want)
		}
		events = events[len(want):]
	}
	if want := m.ledger.after(at); !slices.Equal(events, want) {
		return fmt.Errorf("from %d: %d events, want %d", at, len(events), len(want))
	}
	return nil
}
