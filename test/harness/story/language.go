package story

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Language is what the stories of a test say beside what the package comment lists.
// The zero Language adds nothing.
type Language struct {
	Directives []Directive
	// Marks are those of lines behind an answer's status: one character, such as '%',
	// then what is wanted. The lines of an answer that have the mark are compared at once,
	// in their order, after all others held.
	Marks map[byte]func(want []string, answer string) error
	// Record, if there is one, is given the answers to the requests that have a heading. A file
	// is one story then, and no request of it says its answer but those that are repeated.
	Record func(ctx context.Context, name string, a *Answer) error
}

// Directive is a line that begins with @.
type Directive struct {
	// Usage is the line as a reader sees it: the word, then a name for each argument:
	// "@compact N". One that may be missing is "[MODE]"; of "FRAGMENTS..." there may be any
	// number, even none.
	Usage string
	// Do is called with the arguments, and the variables, which it may set.
	Do func(ctx context.Context, vars map[string]string, args []string) error
	// Read, instead of Do, is called when the line is read, which is before all that is played:
	// with the rest of the line, and a function for the lines below it, up to an empty one or a mark.
	Read func(rest string, lines func() string) error
	// Sent, instead of Do, is for a line whose rest begins a request: whether it is sent.
	Sent func() bool
}

// verb is a directive of any Language.
type verb struct {
	usage string
	do    func(r *run, args []string) error
}

var verbs = []verb{
	{"@watch W PATH", (*run).watch},
	{"@event W TYPE FRAGMENTS...", (*run).event},
	{"@skip-until W FRAGMENTS...", (*run).skip},
	{"@end W", (*run).end},
	{"@ended W", (*run).ended},
	{"@close W", (*run).unwatch},
	{"@until PATH FRAGMENTS...", (*run).awaitAnswer},
	{"@gone PATH", (*run).awaitGone},
}

// directive is what a line does when it is played, and nil if it was done when it was read.
func (p *parser) directive(line string) (func(*run) error, error) {
	l, words := p.language, strings.Fields(line)
	if i := slices.IndexFunc(l.Directives, func(d Directive) bool { return d.Do == nil && firstWord(d.Usage) == words[0] }); i >= 0 {
		return p.special(l.Directives[i], strings.TrimSpace(strings.TrimPrefix(line, words[0])))
	}
	v, err := l.verb(words[0])
	if err != nil {
		return nil, err
	}
	if !fits(v.usage, len(words)) {
		return nil, fmt.Errorf("want %s, got %s", v.usage, strings.Join(words, " "))
	}
	return func(r *run) error {
		args := make([]string, len(words)-1)
		for i, w := range words[1:] {
			var err error
			if args[i], err = r.fill(w); err != nil {
				return err
			}
		}
		return v.do(r, args)
	}, nil
}

// special does what a directive without Do says.
func (p *parser) special(d Directive, rest string) (func(*run) error, error) {
	switch {
	case rest == "":
		return nil, fmt.Errorf("want %s, got %s", d.Usage, firstWord(d.Usage))
	case d.Read != nil && (len(p.story().steps) > 0 || len(p.story().Recorded) > 0):
		return nil, fmt.Errorf("%s comes before the first request", firstWord(d.Usage))
	case d.Read != nil:
		return nil, d.Read(rest, p.body)
	}
	play, err := p.request("> " + rest)
	return func(r *run) error {
		if !d.Sent() {
			return nil
		}
		return play(r)
	}, err
}

func (l Language) verb(word string) (verb, error) {
	for _, v := range verbs {
		if firstWord(v.usage) == word {
			return v, nil
		}
	}
	for _, d := range l.Directives {
		if firstWord(d.Usage) == word {
			return verb{d.Usage, func(r *run, args []string) error { return d.Do(r.ctx, r.vars, args) }}, nil
		}
	}
	return verb{}, fmt.Errorf("unknown directive %s", word)
}

func firstWord(usage string) string {
	word, _, _ := strings.Cut(usage, " ")
	return word
}

// fits reports whether a line of n words can be what usage says.
func fits(usage string, n int) bool {
	least, most := 0, 0
	for _, w := range strings.Fields(usage) {
		switch {
		case strings.HasSuffix(w, "..."):
			most = n
		case strings.HasPrefix(w, "["):
			most++
		default:
			least++
			most++
		}
	}
	return least <= n && n <= most
}
