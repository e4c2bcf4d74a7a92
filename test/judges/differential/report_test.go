package differential

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// known is a difference that is meant.
type known struct {
	text   string
	sign   byte
	fields []string
	used   bool
}

// readKnown reads the differences that are meant.
func readKnown(file string) ([]*known, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var all []*known
	for l := range strings.Lines(string(raw)) {
		if l = strings.TrimSpace(l); l == "" || strings.HasPrefix(l, "#") {
			continue
		}
		what, reason, ok := strings.Cut(l, " # ")
		fields := strings.Fields(what)
		if !ok || strings.TrimSpace(reason) == "" || len(fields) < 4 || fields[0] != "-" && fields[0] != "+" {
			return nil, fmt.Errorf("%s: %q: want SIGN KIND VERB WHAT DETAIL # REASON", file, l)
		}
		all = append(all, &known{text: strings.TrimSpace(what), sign: fields[0][0], fields: fields[1:]})
	}
	return all, nil
}

// words are what known.txt calls the categories.
var words = map[string]string{
	noAnswer: "silent", brokenHere: "broken", brokenThere: "broken", acceptedHere: "accepted", acceptedThere: "accepted", otherCode: "code",
	otherObject: "object", otherCauses: "cause", otherMessage: "message", otherRefusal: "refusal", otherWarnings: "warning", otherReviews: "review",
}

func (k *known) matches(d *difference, l line) bool {
	if k.sign != l.sign {
		return false
	}
	have := append([]string{d.gvk, d.verb, words[d.category]}, strings.Fields(l.detail)...)
	if len(k.fields) > len(have) {
		return false
	}
	for i, f := range k.fields {
		if begin, any := strings.CutSuffix(f, "*"); any && strings.HasPrefix(have[i], begin) {
			continue
		}
		if f != have[i] && (i != len(k.fields)-1 || !strings.HasPrefix(have[i], f)) {
			return false
		}
	}
	return true
}

// group are like differences.
type group struct {
	difference
	count int
	kinds map[string]int
}

// report counts outcomes. Its methods can be called by several goroutines.
type report struct {
	known []*known

	mu                   sync.Mutex
	requests, accepted   int
	refused, withCauses  int
	groups               map[string]*group
	totals               map[string]int
	meant                map[string]int
	verbs, verbsAccepted map[string]int
	codes                map[string]int
}

func newReport(known []*known) *report {
	return &report{
		known: known, groups: map[string]*group{}, totals: map[string]int{}, meant: map[string]int{},
		verbs: map[string]int{}, verbsAccepted: map[string]int{}, codes: map[string]int{},
	}
}

// add counts an outcome; id is SEED:INDEX.
func (r *report) add(id string, o *outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests++
	r.verbs[o.q.verb]++
	r.codes[fmt.Sprint(o.codes[0])]++
	if o.codes[0] < 300 {
		r.accepted++
		r.verbsAccepted[o.q.verb]++
	} else {
		r.refused++
	}
	if o.causes {
		r.withCauses++
	}
	for category, lines := range o.differ {
		r.count(&difference{category, o.q.resource.gvk(), o.q.verb, lines, id, o.q.origin + ": " + describe(o.q.changes)})
	}
}

// count counts what is not meant of a difference.
func (r *report) count(d *difference) {
	d.lines = slices.DeleteFunc(slices.Clone(d.lines), func(l line) bool {
		found := false
		for _, k := range r.known {
			if k.matches(d, l) {
				k.used, found = true, true
			}
		}
		return found
	})
	if len(d.lines) == 0 {
		r.meant[d.category]++
		return
	}
	r.totals[d.category]++
	// Objects and sets of causes count for each of the fields in which they differ.
	parts := [][]line{d.lines}
	if d.category == otherObject || d.category == otherCauses {
		parts = nil
		byPath := map[string][]line{}
		for _, l := range d.lines {
			p, _, _ := strings.Cut(l.detail, " ")
			byPath[p] = append(byPath[p], l)
		}
		for _, p := range slices.Sorted(maps.Keys(byPath)) {
			parts = append(parts, byPath[p])
		}
	}
	for _, lines := range parts {
		part := *d
		part.lines = lines
		shape := part.shape()
		g := r.groups[shape]
		if g == nil {
			g = &group{difference: part, kinds: map[string]int{}}
			r.groups[shape] = g
		}
		g.count++
		g.kinds[d.gvk+" "+d.verb]++
		if len(part.what) < len(g.what) {
			g.difference = part
		}
	}
}

var podOf = regexp.MustCompile(`^(spec\.(jobTemplate\.spec\.)?)?template\.spec\.`)

// shape is by what differences are counted together, whatever the kind and the verb.
func (d *difference) shape() string {
	s := d.category
	for _, l := range d.lines {
		detail := generalText(l.detail)
		switch d.category {
		case otherObject:
			detail, _, _ = strings.Cut(l.detail, " ")
		case otherCauses:
			detail = l.detail
		}
		if podOf.MatchString(detail) {
			detail = podOf.ReplaceAllString(detail, "<pod>.")
		} else if d.gvk == "v1/Pod" {
			detail = strings.Replace(detail, "spec.", "<pod>.", 1)
		}
		s += fmt.Sprintf("|%c %s", l.sign, detail)
	}
	return s
}

// where names some of the kinds and verbs of a group, the most frequent first.
func (g *group) where() string {
	all := slices.SortedFunc(maps.Keys(g.kinds), func(a, b string) int { return cmp.Or(g.kinds[b]-g.kinds[a], strings.Compare(a, b)) })
	s := strings.Join(all[:min(3, len(all))], ", ")
	if len(all) > 3 {
		s += fmt.Sprintf(" and %d more", len(all)-3)
	}
	return s
}

// cell is a text in a table.
func cell(s string, n int) string {
	return strings.NewReplacer("\n", " ", "|", "\\|", "`", "'").Replace(cut(s, n))
}

// print writes the groups, the most frequent first, as Markdown.
func (r *report) print(w io.Writer, most int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, category := range append([]string{unlikeAtBegins}, categories...) {
		var all []*group
		for _, g := range r.groups {
			if g.category == category {
				all = append(all, g)
			}
		}
		if len(all) == 0 {
			continue
		}
		slices.SortFunc(all, func(a, b *group) int { return cmp.Or(b.count-a.count, strings.Compare(a.shape(), b.shape())) })
		fmt.Fprintf(w, "\n## %s: %d, in %d forms\n\n| times | kind, verb | what | example |\n|---|---|---|---|\n", category, r.totals[category], len(all))
		for _, g := range all[:min(most, len(all))] {
			var what []string
			for _, l := range g.lines[:min(6, len(g.lines))] {
				what = append(what, fmt.Sprintf("`%c %s`", l.sign, cell(l.detail, 260)))
			}
			if len(g.lines) > 6 {
				what = append(what, fmt.Sprintf("and %d more", len(g.lines)-6))
			}
			fmt.Fprintf(w, "| %d | %s | %s | %s %s |\n", g.count, g.where(), strings.Join(what, "<br>"), g.example, cell(g.what, 220))
		}
		if len(all) > most {
			fmt.Fprintf(w, "| … | %d more forms | | |\n", len(all)-most)
		}
	}
	fmt.Fprintf(w, "\n## Totals\n\n%d requests: kube-apiserver accepted %d, refused %d; both refused %d with causes.\n\n| what | requests | of all | with known reasons |\n|---|---|---|---|\n", r.requests, r.accepted, r.refused, r.withCauses)
	for _, c := range categories {
		fmt.Fprintf(w, "| %s | %d | %.2f %% | %d |\n", c, r.totals[c], 100*float64(r.totals[c])/float64(max(1, r.requests)), r.meant[c])
	}
	fmt.Fprintf(w, "\nOf the sets of causes %.2f %% differ.\n\n| verb | requests | accepted |\n|---|---|---|\n", 100*float64(r.totals[otherCauses])/float64(max(1, r.withCauses)))
	for _, v := range slices.Sorted(maps.Keys(r.verbs)) {
		fmt.Fprintf(w, "| %s | %d | %d |\n", v, r.verbs[v], r.verbsAccepted[v])
	}
	fmt.Fprintln(w, "\nCodes of kube-apiserver:", r.codes)
}

// differ says how many requests differ without a reason.
func (r *report) differ() int {
	n := 0
	for _, c := range r.totals {
		n += c
	}
	return n
}
