package story

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Story is a story that was read. It may be played any number of times, also at once.
type Story struct {
	// Name is that of the heading, or of the file that has only this story; Title is "" there.
	Name, Title string
	// NotYet says why the story fails today; "" if it must not.
	NotYet string
	// Recorded are the names of the requests with headings, in their order.
	Recorded []string
	// Patience, if it is not 0, bounds every wait of this story instead of the constant.
	Patience time.Duration
	// Once says that requests (>>) of a recorded story are not repeated, but answered as expected at once.
	Once bool

	file  string
	steps []step
}

// step is what a story does at a line.
type step struct {
	line int
	play func(*run) error
}

// Stories reads a file of stories that each begin with a heading.
func (l Language) Stories(file string) ([]*Story, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read stories: %w", err)
	}
	p := parser{language: l, file: file, lines: strings.Split(string(text), "\n"), headings: true}
	return p.parse()
}

// Story reads a file that is one story, without a heading.
func (l Language) Story(file string) (*Story, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read a story: %w", err)
	}
	return l.Parse(file, string(text))
}

// Parse reads the text of a file that is one story.
func (l Language) Parse(file, text string) (*Story, error) {
	name := strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
	p := parser{language: l, file: file, lines: strings.Split(text, "\n"), stories: []*Story{{Name: name, file: file}}}
	all, err := p.parse()
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

type parser struct {
	language Language
	file     string
	lines    []string
	at       int  // how many lines are read: the number of the last one
	headings bool // each story has one
	stories  []*Story
	heading  string // the one whose request has not come yet
}

// story is the one that is read.
func (p *parser) story() *Story { return p.stories[len(p.stories)-1] }

// body reads lines up to an empty one or one that begins with a mark.
func (p *parser) body() string {
	begin := p.at
	for p.at < len(p.lines) && strings.TrimSpace(p.lines[p.at]) != "" && !mark.MatchString(p.lines[p.at]) {
		p.at++
	}
	return strings.Join(p.lines[begin:p.at], "\n")
}

// line takes the next line; ok is false at the end of the file.
func (p *parser) line() (line string, ok bool) {
	if p.at == len(p.lines) {
		return "", false
	}
	p.at++
	return p.lines[p.at-1], true
}

func (p *parser) parse() ([]*Story, error) {
	for {
		line, ok := p.line()
		if !ok {
			break
		}
		if err := p.statement(line); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", p.file, p.at, err)
		}
	}
	switch {
	case len(p.stories) == 0:
		return nil, fmt.Errorf("%s: there is no story", p.file)
	case p.heading != "":
		return nil, fmt.Errorf("%s: %w", p.file, p.unmet())
	case p.language.Record != nil && len(p.story().Recorded) == 0:
		return nil, fmt.Errorf("%s: nothing is recorded: there is no heading", p.file)
	}
	for _, s := range p.stories {
		if len(s.steps) == 0 {
			return nil, fmt.Errorf("%s: nothing happens in the story %s", p.file, s.Name)
		}
	}
	return p.stories, nil
}

var (
	heading = regexp.MustCompile(`^== ([a-z0-9-]+): (.+)$`)
	mark    = regexp.MustCompile(`^(== |@|> |>> |< |~ |! |\$)`)
)

// unmet says that a heading has no request.
func (p *parser) unmet() error {
	return fmt.Errorf("there is no request below the heading %s", p.heading)
}

// readHeading reads the heading of a story, or of a request that is recorded.
func (p *parser) readHeading(line string) error {
	m := heading.FindStringSubmatch(line)
	switch {
	case m == nil:
		return fmt.Errorf("not a heading: %s", line)
	case p.headings:
		p.stories = append(p.stories, &Story{Name: m[1], Title: m[2], file: p.file})
		return nil
	case p.heading != "":
		return p.unmet()
	case slices.Contains(p.story().Recorded, m[1]):
		return fmt.Errorf("there are two requests %s", m[1])
	}
	p.heading = m[1]
	p.story().Recorded = append(p.story().Recorded, m[1])
	return nil
}

// headed reports whether a line that begins with == is a heading.
func (p *parser) headed() bool { return p.headings || p.language.Record != nil }

// statement reads what begins with a line.
func (p *parser) statement(line string) error {
	switch {
	case strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#"):
		return nil
	case p.headed() && strings.HasPrefix(line, "=="):
		return p.readHeading(line)
	case len(p.stories) == 0:
		return fmt.Errorf("before the first story: %s", line)
	}
	s := p.story()
	begin := p.at
	var play func(*run) error
	var err error
	switch {
	case p.headed() && len(s.steps) == 0 && p.heading == "" && strings.HasPrefix(line, "@not-yet "):
		s.NotYet = strings.TrimPrefix(line, "@not-yet ")
		return nil
	case p.heading != "" && strings.HasPrefix(line, "@"):
		return p.unmet()
	case strings.HasPrefix(line, "@"):
		play, err = p.directive(line)
	case strings.HasPrefix(line, "> "), strings.HasPrefix(line, ">> "):
		play, err = p.request(line)
	default:
		err = fmt.Errorf("not understood: %q", line)
	}
	if play == nil || err != nil {
		return err
	}
	s.steps = append(s.steps, step{line: begin, play: play})
	return nil
}
