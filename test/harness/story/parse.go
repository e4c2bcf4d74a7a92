package story

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Story is a story that was read. It may be played any number of times, also at once.
type Story struct {
	// Name is that of the heading, or of the file that has only this story; Title is "" there.
	Name, Title string
	// NotYet says why the story fails today; "" if it must not.
	NotYet string

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
	return l.text(file, string(text))
}

func (l Language) text(file, text string) (*Story, error) {
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
	if len(p.stories) == 0 {
		return nil, fmt.Errorf("%s: there is no story", p.file)
	}
	for _, s := range p.stories {
		if len(s.steps) == 0 {
			return nil, fmt.Errorf("%s: nothing happens in the story %s", p.file, s.Name)
		}
	}
	return p.stories, nil
}

var heading = regexp.MustCompile(`^== ([a-z0-9-]+): (.+)$`)

// statement reads what begins with a line.
func (p *parser) statement(line string) error {
	switch {
	case strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#"):
		return nil
	case p.headings && strings.HasPrefix(line, "=="):
		m := heading.FindStringSubmatch(line)
		if m == nil {
			return fmt.Errorf("not the heading of a story: %s", line)
		}
		p.stories = append(p.stories, &Story{Name: m[1], Title: m[2], file: p.file})
		return nil
	case len(p.stories) == 0:
		return fmt.Errorf("before the first story: %s", line)
	}
	s := p.stories[len(p.stories)-1]
	begin := p.at
	var play func(*run) error
	var err error
	switch {
	case p.headings && strings.HasPrefix(line, "@not-yet "):
		s.NotYet = strings.TrimPrefix(line, "@not-yet ")
		return nil
	case strings.HasPrefix(line, "@"):
		play, err = p.language.directive(strings.Fields(line))
	case strings.HasPrefix(line, "> "), strings.HasPrefix(line, ">> "):
		play, err = p.request(line)
	default:
		err = fmt.Errorf("not understood: %q", line)
	}
	if err != nil {
		return err
	}
	s.steps = append(s.steps, step{line: begin, play: play})
	return nil
}
