package history

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Expectation is what a text file says that its judge must find: a check by name,
// and words of the violation's text.
type Expectation struct {
	Check, Text string
}

// Parse reads a history from text, one thing per line, for histories that people
// write. Times are milliseconds. Events follow their watch. "#" begins a comment.
//
//	log-from 3
//	log a=1@4 b=2@5 a-@6                         version a=1 at revision 4, …, the deletion of a
//	op c1 n1 create a=1 0..10 ok @4              client, node, kind, key and value, call..return, outcome
//	op c1 n1 update-if a=2 if=4 0..10 refused 409 Conflict
//	op c1 n1 update a=2 0.. unknown 504          it never returned
//	op c2 n2 get a MostRecent 0..10 ok a=1@4
//	op c2 n2 get a Any 0..10 refused 404 stale=5
//	op c2 n2 list Exact asked=4 0..10 ok @4 a=1@4
//	op c2 n2 list Exact asked=4 prefix=a limit=1 after=a more 0..10 ok @4 a=1@4
//	rule c1 n1 quota 0..10 ok @4                 the rule of that name was changed
//	decided c2 n2 quota by=4 20..30 ok @5        a write was decided by its version 4
//	watch c3 n1 0..100 from=4 bookmarks prefix=a selector=1
//	watch c3 n1 0..100 unset initial bookmarks
//	  12 ADDED a=1@4
//	  13 BOOKMARK @5 initial-end
//	  14 ERROR 410
//	fault kill n1,n2 5..50
//	state n1 @6 hash floor=2
//	relists 1
//	overtaken 1
//	expect watch/reliable words of the text
func Parse(text string) (*History, []Expectation, error) {
	p := &parser{h: new(History)}
	for i, line := range strings.Split(text, "\n") {
		if at := strings.Index(line, "#"); at >= 0 {
			line = line[:at]
		}
		p.words = strings.Fields(line)
		if len(p.words) == 0 {
			continue
		}
		if err := p.line(); err != nil {
			return nil, nil, fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	return p.h, p.expected, nil
}

type parser struct {
	h        *History
	words    []string
	expected []Expectation
}

func (p *parser) next() string {
	if len(p.words) == 0 {
		return ""
	}
	w := p.words[0]
	p.words = p.words[1:]
	return w
}

func (p *parser) line() (err error) {
	switch w := p.next(); w {
	case "name":
		p.h.Name = p.next()
	case "seed":
		p.h.Seed, err = strconv.ParseUint(p.next(), 10, 64)
	case "relists":
		p.h.Relists, err = strconv.Atoi(p.next())
	case "overtaken":
		p.h.Overtaken, err = strconv.Atoi(p.next())
	case "log-from":
		p.h.LogFrom, err = strconv.ParseUint(p.next(), 10, 64)
	case "log":
		return p.log()
	case "op":
		return p.op()
	case "rule", "decided":
		return p.decision(w == "rule")
	case "watch":
		return p.watch()
	case "fault":
		return p.fault()
	case "state":
		return p.state()
	case "expect":
		p.expected = append(p.expected, Expectation{p.next(), strings.Join(p.words, " ")})
	default:
		at, err := strconv.ParseFloat(w, 64)
		if err != nil {
			return fmt.Errorf("unknown word %q", w)
		}
		return p.event(millis(at))
	}
	return err
}

func millis(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// span reads 0..10; an open end is Forever.
func span(w string) (from, to time.Duration, err error) {
	a, b, ok := strings.Cut(w, "..")
	if !ok {
		return 0, 0, fmt.Errorf("%q is no span", w)
	}
	f, err := strconv.ParseFloat(a, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("span %q: %w", w, err)
	}
	if b == "" {
		return millis(f), Forever, nil
	}
	t, err := strconv.ParseFloat(b, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("span %q: %w", w, err)
	}
	return millis(f), millis(t), nil
}

// item reads a=1@4, a@4, @4 or a-@4 (deleted).
func item(w string) (it Item, deleted bool, err error) {
	head, rev, ok := strings.Cut(w, "@")
	if !ok {
		return it, false, fmt.Errorf("%q has no revision", w)
	}
	it.Revision, err = strconv.ParseUint(rev, 10, 64)
	if err != nil {
		return it, false, fmt.Errorf("%q: %w", w, err)
	}
	it.Key, it.Value, ok = strings.Cut(head, "=")
	if !ok && strings.HasSuffix(head, "-") {
		it.Key, deleted = strings.TrimSuffix(head, "-"), true
	}
	return it, deleted, nil
}

func (p *parser) log() error {
	for len(p.words) > 0 {
		it, deleted, err := item(p.next())
		if err != nil {
			return err
		}
		p.h.Log = append(p.h.Log, Entry{Item: it, Deleted: deleted})
	}
	return nil
}

func client(w string) (int, error) {
	n, err := strconv.Atoi(strings.TrimPrefix(w, "c"))
	if err != nil {
		return 0, fmt.Errorf("%q is no client", w)
	}
	return n, nil
}

func (p *parser) op() (err error) {
	var o Op
	if o.Client, err = client(p.next()); err != nil {
		return err
	}
	o.Node, o.Kind = p.next(), Kind(p.next())
	for o.Outcome == "" {
		w := p.next()
		name, arg, has := strings.Cut(w, "=")
		switch {
		case w == "":
			return fmt.Errorf("the operation has no outcome")
		case w == string(OK), w == string(Refused), w == string(Unknown):
			o.Outcome = Outcome(w)
		case w == string(MostRecent), w == string(Any), w == string(NotOlderThan), w == string(Exact):
			o.Mode = Mode(w)
		case w == "more":
			o.More = true
		case strings.Contains(w, ".."):
			o.Call, o.Return, err = span(w)
		case has && name == "if":
			o.Precondition, err = strconv.ParseUint(arg, 10, 64)
		case has && name == "asked":
			o.Asked, err = strconv.ParseUint(arg, 10, 64)
		case has && name == "limit":
			o.Limit, err = strconv.Atoi(arg)
		case has && name == "prefix":
			o.Prefix = arg
		case has && name == "after":
			o.After = arg
		default:
			o.Key, o.Value = name, arg
		}
		if err != nil {
			return err
		}
	}
	if err := p.answer(&o); err != nil {
		return err
	}
	p.h.Ops = append(p.h.Ops, o)
	return nil
}

// answer reads what follows the outcome.
func (p *parser) answer(o *Op) error {
	for len(p.words) > 0 {
		w := p.next()
		if arg, ok := strings.CutPrefix(w, "stale="); ok {
			ms, err := strconv.ParseFloat(arg, 64)
			if err != nil {
				return err
			}
			d := millis(ms)
			o.Staleness = &d
			continue
		}
		if strings.Contains(w, "@") {
			it, _, err := item(w)
			switch {
			case err != nil:
				return err
			case it.Key == "":
				o.Revision = it.Revision
			default:
				o.Items = append(o.Items, it)
			}
			continue
		}
		if code, err := strconv.Atoi(w); err == nil {
			o.Code = code
		} else {
			o.Reason = w
		}
	}
	return nil
}

func (p *parser) decision(change bool) (err error) {
	d := Decision{Change: change}
	if d.Client, err = client(p.next()); err != nil {
		return err
	}
	d.Node, d.Rule = p.next(), p.next()
	for len(p.words) > 0 && err == nil {
		w := p.next()
		name, arg, _ := strings.Cut(w, "=")
		switch {
		case name == "by":
			d.By, err = strconv.ParseUint(arg, 10, 64)
		case strings.Contains(w, ".."):
			d.Call, d.Return, err = span(w)
		case strings.HasPrefix(w, "@"):
			d.Revision, err = strconv.ParseUint(w[1:], 10, 64)
		default:
			d.Outcome = Outcome(w)
		}
	}
	p.h.Decisions = append(p.h.Decisions, d)
	return err
}

func (p *parser) watch() (err error) {
	var w Watch
	if w.Client, err = client(p.next()); err != nil {
		return err
	}
	w.Node = p.next()
	for len(p.words) > 0 {
		word := p.next()
		name, arg, _ := strings.Cut(word, "=")
		switch name {
		case "from":
			w.From, err = strconv.ParseUint(arg, 10, 64)
		case "unset":
			w.Unset = true
		case "initial":
			w.Initial = true
		case "bookmarks":
			w.Bookmarks = true
		case "prefix":
			w.Prefix = arg
		case "selector":
			w.Selector = arg
		case "ended":
			w.Ended = arg
		default:
			w.Begin, w.End, err = span(word)
		}
		if err != nil {
			return err
		}
	}
	p.h.Watches = append(p.h.Watches, w)
	return nil
}

func (p *parser) event(at time.Duration) (err error) {
	if len(p.h.Watches) == 0 {
		return fmt.Errorf("an event without a watch")
	}
	w := &p.h.Watches[len(p.h.Watches)-1]
	e := Event{Type: EventType(p.next()), At: at}
	switch e.Type {
	case Error:
		e.Code, err = strconv.Atoi(p.next())
	case Added, Modified, Deleted, Bookmark:
		e.Item, _, err = item(p.next())
	default:
		err = fmt.Errorf("unknown type of event %q", e.Type)
	}
	if p.next() == "initial-end" {
		e.InitialEnd = true
	}
	w.Events = append(w.Events, e)
	return err
}

func (p *parser) fault() (err error) {
	f := Fault{Kind: p.next(), Nodes: strings.Split(p.next(), ",")}
	f.Begin, f.End, err = span(p.next())
	f.Detail = strings.Join(p.words, " ")
	p.h.Faults = append(p.h.Faults, f)
	return err
}

func (p *parser) state() error {
	s := State{Node: p.next()}
	it, _, err := item(p.next())
	if err != nil {
		return err
	}
	s.Revision, s.Hash = it.Revision, p.next()
	if floor, ok := strings.CutPrefix(p.next(), "floor="); ok {
		if s.Floor, err = strconv.ParseUint(floor, 10, 64); err != nil {
			return err
		}
	}
	p.h.States = append(p.h.States, s)
	return nil
}
