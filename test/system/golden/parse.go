package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// story is a file of testdata that was read.
type story struct {
	file, name string
	notYet     string // why Quorate does not answer so today
	flags      []string
	files      map[string]string
	webhooks   map[string]webhookSpec
	recorded   []string // the names of the requests with headings
	steps      []step
}

// step is what a story does at a line.
type step struct {
	line int
	play func(*player) error
}

type parser struct {
	lines []string
	at    int // how many lines are read: the number of the last one
	story *story
	// heading is the one whose request has not come yet.
	heading string
}

func readStory(file string) (*story, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read a story: %w", err)
	}
	return parseStory(file, string(text))
}

func parseStory(file, text string) (*story, error) {
	p := parser{
		lines: strings.Split(text, "\n"),
		story: &story{
			file: file, name: strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)),
			files: map[string]string{}, webhooks: map[string]webhookSpec{},
		},
	}
	for p.at < len(p.lines) {
		line := p.lines[p.at]
		p.at++
		begin := p.at
		play, err := p.statement(line)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, p.at, err)
		}
		if play != nil {
			p.story.steps = append(p.story.steps, step{line: begin, play: play})
		}
	}
	if p.heading != "" {
		return nil, fmt.Errorf("%s: there is no request below the heading %s", file, p.heading)
	}
	if len(p.story.recorded) == 0 {
		return nil, fmt.Errorf("%s: nothing is recorded: there is no heading", file)
	}
	return p.story, nil
}

var (
	heading  = regexp.MustCompile(`^== ([a-z0-9-]+): (.+)$`)
	variable = regexp.MustCompile(`\$\{\w+\}`)
	// marks begin the lines that end a body.
	marks = []string{"== ", "@", "> ", ">> ", "< ", "~ ", "! ", "$"}
)

func (p *parser) statement(line string) (func(*player) error, error) {
	switch {
	case strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#"):
		return nil, nil
	case strings.HasPrefix(line, "=="):
		return nil, p.readHeading(line)
	case strings.HasPrefix(line, "> "), strings.HasPrefix(line, ">> "):
		return p.request(line)
	case !strings.HasPrefix(line, "@"):
		return nil, fmt.Errorf("not understood: %q", line)
	}
	if p.heading != "" {
		return nil, fmt.Errorf("there is no request below the heading %s", p.heading)
	}
	word, rest, _ := strings.Cut(line, " ")
	words := strings.Fields(rest)
	if len(words) == 0 {
		return nil, fmt.Errorf("%s of what?", word)
	}
	if slices.Contains([]string{"@not-yet", "@plugins", "@flag", "@file", "@webhook"}, word) {
		if len(p.story.steps) > 0 || len(p.story.recorded) > 0 {
			return nil, fmt.Errorf("%s comes before the first request", word)
		}
		return nil, p.head(word, rest)
	}
	switch word {
	case "@until":
		return func(r *player) error { return r.until(words[0], words[1:]) }, nil
	case "@gone":
		return func(r *player) error { return r.gone(words[0]) }, nil
	case "@controller":
		q, err := p.message(rest)
		if err != nil {
			return nil, err
		}
		return func(r *player) error {
			if !r.server.upstream {
				return nil
			}
			return r.prepare(q)
		}, nil
	}
	return nil, fmt.Errorf("unknown directive %s", word)
}

// head reads what concerns the server.
func (p *parser) head(word, rest string) error {
	switch word {
	case "@not-yet":
		p.story.notYet = rest
	case "@plugins": // for whom reads the stories, not for the servers
	case "@flag":
		if !strings.HasPrefix(rest, "--") || !strings.Contains(rest, "=") {
			return fmt.Errorf("a flag is --NAME=VALUE, got %s", rest)
		}
		p.story.flags = append(p.story.flags, strings.TrimPrefix(rest, "--"))
	case "@file":
		if p.story.files[rest] != "" {
			return fmt.Errorf("there are two files %s", rest)
		}
		p.story.files[rest] = p.body()
	case "@webhook":
		if _, ok := p.story.webhooks[rest]; ok {
			return fmt.Errorf("there are two webhooks %s", rest)
		}
		spec, err := parseWebhook(p.body())
		if err != nil {
			return err
		}
		p.story.webhooks[rest] = spec
	}
	return nil
}

func (p *parser) readHeading(line string) error {
	m := heading.FindStringSubmatch(line)
	switch {
	case m == nil:
		return fmt.Errorf("not a heading: %s", line)
	case p.heading != "":
		return fmt.Errorf("there is no request below the heading %s", p.heading)
	case slices.Contains(p.story.recorded, m[1]):
		return fmt.Errorf("there are two requests %s", m[1])
	}
	p.heading = m[1]
	p.story.recorded = append(p.story.recorded, m[1])
	return nil
}

// body reads lines until one that is empty or begins with a mark.
func (p *parser) body() string {
	var body []string
	for ; p.at < len(p.lines); p.at++ {
		line := p.lines[p.at]
		if strings.TrimSpace(line) == "" || slices.ContainsFunc(marks, func(m string) bool { return strings.HasPrefix(line, m) }) {
			break
		}
		body = append(body, line)
	}
	return strings.Join(body, "\n")
}

// message reads the rest of a request's first line, its headers, its body and what it captures.
func (p *parser) message(first string) (*request, error) {
	method, path, ok := strings.Cut(first, " ")
	if !ok || !strings.HasPrefix(path, "/") {
		return nil, fmt.Errorf("a request is METHOD PATH, got %s", first)
	}
	q := &request{method: method, path: path}
	for ; p.at < len(p.lines) && strings.HasPrefix(p.lines[p.at], "> "); p.at++ {
		name, value, ok := strings.Cut(p.lines[p.at][2:], ": ")
		if !ok {
			break // the next request
		}
		q.header = append(q.header, [2]string{name, value})
	}
	q.body = p.body()
	for ; p.at < len(p.lines); p.at++ {
		line := p.lines[p.at]
		if !strings.HasPrefix(line, "$") && !strings.HasPrefix(line, "< ") && !strings.HasPrefix(line, "~ ") && !strings.HasPrefix(line, "! ") {
			break
		}
		mark, want, _ := strings.Cut(line, " ")
		if mark[0] == '$' {
			pattern, err := regexp.Compile(want)
			if err != nil || pattern.NumSubexp() == 0 || len(mark) < 2 {
				return nil, errors.Join(fmt.Errorf("want $NAME PATTERN with a group, got %q", line), err)
			}
			q.captures = append(q.captures, capture{mark[1:], pattern})
			continue
		}
		q.awaited = append(q.awaited, awaited{mark[0], want})
	}
	return q, nil
}

func (p *parser) request(line string) (func(*player) error, error) {
	mark, rest, _ := strings.Cut(line, " ")
	q, err := p.message(rest)
	if err != nil {
		return nil, err
	}
	q.name, p.heading = p.heading, ""
	q.again = mark == ">>"
	if q.again != (len(q.awaited) > 0) {
		return nil, errors.New("what is awaited (<, ~, !) is said of a request that is repeated (>>), and of no other")
	}
	if q.name == "" {
		return func(r *player) error { return r.prepare(q) }, nil
	}
	return func(r *player) error { return r.record(q) }, nil
}
