package differential

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The kinds of differences, the worst first.
const (
	brokenHere     = "5xx here only"
	brokenThere    = "5xx there only"
	acceptedHere   = "accepted here only"
	acceptedThere  = "accepted there only"
	otherCode      = "other code"
	otherObject    = "stored object differs"
	otherCauses    = "causes differ"
	otherMessage   = "message differs"
	otherWarnings  = "warnings differ"
	otherRefusal   = "rest of a refusal differs"
	otherReviews   = "reviews differ"
	noAnswer       = "no answer"
	unlikeAtBegins = "prepare"
)

var categories = []string{noAnswer, brokenHere, brokenThere, acceptedHere, acceptedThere, otherCode, otherObject, otherCauses, otherMessage, otherRefusal, otherWarnings, otherReviews}

// line is one thing that only one server said.
type line struct {
	sign   byte // '-' is kube-apiserver's, '+' Quorate's
	detail string
}

// outcome is what came of a request.
type outcome struct {
	q     *request
	codes [2]int
	// differ are the lines of each category.
	differ map[string][]line
	// causes says that both refused with causes, so that these were compared.
	causes bool
}

// difference is one category of an outcome.
type difference struct {
	category, gvk, verb string
	lines               []line
	example, what       string
}

// example is the worst difference of an outcome.
func (o *outcome) example(id, origin string) difference {
	for _, c := range categories {
		if o.differ[c] != nil {
			return difference{c, o.q.resource.gvk(), o.q.verb, o.differ[c], id, origin}
		}
	}
	return difference{unlikeAtBegins, o.q.resource.gvk(), o.q.verb, nil, id, origin}
}

// refusal is a Status of failure.
type refusal struct {
	Reason, Message string
	Details         struct {
		Name, Group, Kind string
		RetryAfterSeconds int
		Causes            []struct{ Reason, Message, Field string }
	}
}

// compare holds two answers against each other.
func compare(q *request, there, here *answer) *outcome {
	o := &outcome{q: q, codes: [2]int{there.code, here.code}, differ: map[string][]line{}}
	if there.code != here.code {
		category := otherCode
		switch {
		case here.code >= 500:
			category = brokenHere
		case there.code >= 500:
			category = brokenThere
		case here.code < 300 && there.code >= 300:
			category = acceptedHere
		case there.code < 300 && here.code >= 300:
			category = acceptedThere
		}
		o.differ[category] = []line{{'-', brief(there)}, {'+', brief(here)}}
		return o
	}
	if w := sets(warningTexts(there.warnings), warningTexts(here.warnings)); w != nil {
		o.differ[otherWarnings] = w
	}
	if there.code >= 300 {
		o.refusals(there, here)
		return o
	}
	a, errA := decode(there.body)
	b, errB := decode(here.body)
	if errA != nil || errB != nil {
		o.differ[otherObject] = []line{{'-', fmt.Sprint(errA)}, {'+', fmt.Sprint(errB)}}
		return o
	}
	d := differ{generated: text(field(a, "metadata", "generateName")), later: q.later}
	d.compare(nil, a, b)
	o.differ[otherObject] = d.lines
	if d.lines == nil {
		delete(o.differ, otherObject)
	}
	return o
}

// brief is a refusal in short, or what was accepted.
func brief(a *answer) string {
	if a.code < 300 {
		return fmt.Sprint(a.code)
	}
	var r refusal
	if json.Unmarshal(a.body, &r) != nil {
		return fmt.Sprintf("%d %.100s", a.code, a.body)
	}
	if len(r.Details.Causes) == 0 {
		return fmt.Sprintf("%d %s %s", a.code, r.Reason, cut(generalText(r.Message), 160))
	}
	var causes []string
	for _, c := range r.Details.Causes {
		causes = append(causes, generalField(c.Field)+": "+cut(generalText(c.Message), 100))
	}
	slices.Sort(causes)
	return fmt.Sprintf("%d %s", a.code, cut(strings.Join(slices.Compact(causes), "; "), 400))
}

func (o *outcome) refusals(there, here *answer) {
	var a, b refusal
	if json.Unmarshal(there.body, &a) != nil || json.Unmarshal(here.body, &b) != nil {
		if string(there.body) != string(here.body) {
			o.differ[otherMessage] = []line{{'-', cut(string(there.body), 200)}, {'+', cut(string(here.body), 200)}}
		}
		return
	}
	if a.Reason != b.Reason {
		o.differ[otherCode] = []line{{'-', brief(there)}, {'+', brief(here)}}
		return
	}
	o.causes = len(a.Details.Causes) > 0 || len(b.Details.Causes) > 0
	texts := func(r refusal) (causes, messages []string) {
		for _, c := range r.Details.Causes {
			f := generalField(c.Field)
			causes = append(causes, f+" "+c.Reason)
			messages = append(messages, o.withoutAllocated(f+" "+o.withoutName(c.Message)))
		}
		return causes, messages
	}
	causesA, messagesA := texts(a)
	causesB, messagesB := texts(b)
	if c := sets(unique(causesA), unique(causesB)); c != nil {
		if saysPatch(a) != saysPatch(b) { // one has refused the patch, the other what came of it
			o.differ[otherCode] = []line{{'-', brief(there)}, {'+', brief(here)}}
			return
		}
		o.differ[otherCauses] = c
		return
	}
	if m := sets(messagesA, messagesB); m != nil {
		o.differ[otherMessage] = m
	} else if ma, mb := o.message(a), o.message(b); ma != mb {
		o.differ[otherMessage] = []line{{'-', ma}, {'+', mb}}
	}
	a.Details.Causes, b.Details.Causes = nil, nil
	if m := meta(o.q.there); m["generateName"] != nil && (m["name"] == nil || m["name"] == "") {
		a.Details.Name, b.Details.Name = "", ""
	}
	a.Details.Name, b.Details.Name = normalText(a.Details.Name), normalText(b.Details.Name)
	if a.Details.Name != b.Details.Name || a.Details.Group != b.Details.Group || a.Details.Kind != b.Details.Kind || a.Details.RetryAfterSeconds != b.Details.RetryAfterSeconds {
		o.differ[otherRefusal] = []line{{'-', fmt.Sprintf("%+v", a.Details)}, {'+', fmt.Sprintf("%+v", b.Details)}}
	}
}

// saysPatch says that a patch was refused, and not what it makes of the object.
func saysPatch(r refusal) bool {
	return len(r.Details.Causes) == 1 && r.Details.Causes[0].Field == "patch"
}

// message is that of a refusal, but for what its causes say, which are in another order, and for
// generated names.
func (o *outcome) message(r refusal) string {
	m := r.Message
	if len(r.Details.Causes) > 0 {
		m, _, _ = strings.Cut(m, " is invalid: ")
	}
	return o.withoutName(m)
}

// withoutName is a normal text without the name that was generated for the object.
func (o *outcome) withoutName(s string) string {
	s = uid.ReplaceAllString(s, "<uid>") // first: a short prefix may begin a part of one
	if prefix := text(meta(o.q.there)["generateName"]); strings.TrimSpace(prefix) != "" {
		prefix = prefix[:min(len(prefix), 58)] // which leaves room for what is appended
		quoted := strings.Trim(strconv.Quote(prefix), `"`)
		s = regexp.MustCompile("("+regexp.QuoteMeta(prefix)+"|"+regexp.QuoteMeta(quoted)+")[a-z0-9]{5}").ReplaceAllString(s, "<name>")
	}
	return normalText(s)
}

// withoutAllocated is what a cause says of addresses and node ports of a Service, without those that
// were allocated.
func (o *outcome) withoutAllocated(s string) string {
	if strings.HasPrefix(s, "spec.clusterIP") {
		s = clusterIP.ReplaceAllString(s, "<address>")
	}
	if m := nodePort.FindStringSubmatch(s); m != nil && !strings.Contains(string(o.q.there), m[2]) {
		return nodePort.ReplaceAllString(s, "$1<port>")
	}
	return s
}

// meta is the metadata of a body, or of none.
func meta(body []byte) map[string]any {
	obj, err := decode(body)
	if err != nil {
		return nil
	}
	m, _ := obj["metadata"].(map[string]any)
	return m
}

func unique(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}

// sets are the lines that only one of two lists has, or has more often.
func sets(a, b []string) (lines []line) {
	count := map[string]int{}
	for _, s := range a {
		count[s]++
	}
	for _, s := range b {
		count[s]--
	}
	for _, s := range slices.Sorted(maps.Keys(count)) {
		switch {
		case count[s] > 0:
			lines = append(lines, line{'-', s})
		case count[s] < 0:
			lines = append(lines, line{'+', s})
		}
	}
	return lines
}

var (
	uid           = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	tokenVolumeIn = regexp.MustCompile(`kube-api-access-[a-z0-9]{5}\b`)
	inRecord      = regexp.MustCompile(`in record \(\d+\)`)
	ofVersion     = regexp.MustCompile(`("resourceVersion":"|ResourceVersion in object meta: )\d+`)
	clusterIP     = regexp.MustCompile(`\b10\.0\.0\.\d+\b`)
	nodePort      = regexp.MustCompile(`(nodePort Duplicate value: )(\d+)`)
	now           = regexp.MustCompile(`20[2-9]\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	index         = regexp.MustCompile(`\[\d+\]`)
	long          = regexp.MustCompile(`(x{20,}|(a\.){20,})`)
	object        = regexp.MustCompile(`\([^()]*; [^()]*, Kind=\w+\)|to \S+, Kind=\w+`)
	kind          = regexp.MustCompile(`\b[A-Z][a-zA-Z]+ in version "…" cannot be handled as a \w+`)
	value         = regexp.MustCompile(`"(\\.|[^"\\])*"|\b\d[\w.]*`)
)

// normalText is a text without what differs from run to run.
func normalText(s string) string {
	s = uid.ReplaceAllString(s, "<uid>")
	s = now.ReplaceAllString(s, "<time>")
	s = tokenVolumeIn.ReplaceAllString(s, "kube-api-access-<random>")
	s = inRecord.ReplaceAllString(s, "in record (<resourceVersion>)")
	s = ofVersion.ReplaceAllString(s, "$1<resourceVersion>")
	return long.ReplaceAllString(s, "<long>")
}

// warningTexts are what Warning headers say.
func warningTexts(headers []string) (out []string) {
	for _, s := range headers {
		s = strings.TrimSuffix(strings.TrimPrefix(s, `299 - "`), `"`)
		out = append(out, normalText(strings.ReplaceAll(s, `\"`, `"`)))
	}
	return out
}

// generalText is a text without the values that it names, so that like refusals are counted together.
func generalText(s string) string {
	s = value.ReplaceAllString(normalText(s), `"…"`)
	// Refusals that name the object or its type say the same of all.
	s = object.ReplaceAllString(s, "…")
	return kind.ReplaceAllString(s, "KIND")
}

func generalField(s string) string { return index.ReplaceAllString(s, "[]") }

func cut(s string, n int) string {
	if len(s) > n {
		return s[:n] + "…"
	}
	return s
}

// differ compares objects.
type differ struct {
	generated string // the generateName
	later     time.Duration
	lines     []line
}

func (d *differ) add(sign byte, p path, v any) {
	d.lines = append(d.lines, line{sign, index.ReplaceAllString(p.String(), "[]") + " " + cut(normalText(string(encode(v))), 120)})
}

func (d *differ) compare(p path, a, b any) {
	am, aok := a.(map[string]any)
	bm, bok := b.(map[string]any)
	if aok && bok {
		names := map[string]bool{}
		for n := range am {
			names[n] = true
		}
		for n := range bm {
			names[n] = true
		}
		for _, n := range slices.Sorted(maps.Keys(names)) {
			x, inA := am[n]
			y, inB := bm[n]
			switch {
			case !inA:
				d.add('+', p.plus(n), y)
			case !inB:
				d.add('-', p.plus(n), x)
			case n == "managedFields" && len(p) == 1 && p[0] == "metadata":
				d.managers(x, y)
			default:
				d.compare(p.plus(n), x, y)
			}
		}
		return
	}
	al, aok := a.([]any)
	bl, bok := b.([]any)
	switch p.form() {
	case "status.conditions", "status.resourceRules", "status.nonResourceRules":
		// Conditions come in the order in which they were found, rules in any.
		al, bl = sorted(al), sorted(bl)
	}
	if aok && bok && len(al) == len(bl) {
		for i := range al {
			d.compare(p.plus(i), al[i], bl[i])
		}
		return
	}
	if !d.same(p, a, b) {
		d.add('-', p, a)
		d.add('+', p, b)
	}
}

// sorted is a list without its order.
func sorted(list []any) []any {
	list = slices.Clone(list)
	key := func(v any) string { return text(field(v, "type")) + normalText(string(encode(v))) }
	slices.SortFunc(list, func(a, b any) int { return strings.Compare(key(a), key(b)) })
	return list
}

// same says that two values are, but for what differs from run to run.
func (d *differ) same(p path, a, b any) bool {
	if string(encode(a)) == string(encode(b)) {
		return true
	}
	s, ok := a.(string)
	t, ok2 := b.(string)
	if p.form() == "spec.ports.nodePort" || p.form() == "spec.healthCheckNodePort" {
		return isNumber(a) && isNumber(b)
	}
	if !ok || !ok2 {
		return false
	}
	switch p.form() {
	case "metadata.resourceVersion", "deleteOptions.preconditions.resourceVersion":
		return s != "" && t != ""
	case "metadata.name", "metadata.labels.kubernetes.io/metadata.name", "name": // the last one of a review
		if d.generated != "" && len(s) == len(t) && len(s) > 5 && s[:len(s)-5] == t[:len(t)-5] {
			return true
		}
	case "status.token":
		if x, y := claims(s), claims(t); x != nil && y != nil {
			return normalText(string(encode(x))) == normalText(string(encode(y)))
		}
	case "spec.clusterIP", "spec.clusterIPs":
		_, errA := netip.ParseAddr(s)
		_, errB := netip.ParseAddr(t)
		return errA == nil && errB == nil
	}
	if tokenVolume.MatchString(s) && tokenVolume.MatchString(t) {
		return true
	}
	x, errX := time.Parse(time.RFC3339, s)
	y, errY := time.Parse(time.RFC3339, t)
	if errX == nil && errY == nil {
		return (y.Sub(x) - d.later).Abs() < 10*time.Minute
	}
	return uid.ReplaceAllString(s, "<uid>") == uid.ReplaceAllString(t, "<uid>")
}

// managers compares managedFields, without their order and times.
func (d *differ) managers(a, b any) {
	entries := func(v any) (out []string) {
		list, _ := v.([]any)
		for _, e := range list {
			out = append(out, fmt.Sprintf("metadata.managedFields %v %v %v %v %s", field(e, "manager"), field(e, "operation"), field(e, "apiVersion"), field(e, "subresource"),
				normalText(string(encode(field(e, "fieldsV1"))))))
		}
		return out
	}
	for _, l := range sets(entries(a), entries(b)) {
		d.lines = append(d.lines, line{l.sign, cut(l.detail, 400)})
	}
}
