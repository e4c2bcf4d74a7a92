package story

import (
	"context"
	"fmt"
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
}

// Directive is a line that begins with @.
type Directive struct {
	// Usage is the line as a reader sees it: the word, then a name for each argument:
	// "@compact N". One that may be missing is "[MODE]"; of "FRAGMENTS..." there may be any
	// number, even none.
	Usage string
	// Do is called with the arguments, and the variables, which it may set.
	Do func(ctx context.Context, vars map[string]string, args []string) error
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

// directive is what the words of a line do.
func (l Language) directive(words []string) (func(*run) error, error) {
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
