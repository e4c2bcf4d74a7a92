package story

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Patience bounds every wait of a story.
const Patience = 15 * time.Second

// Send sends a request, whose URL has no host, and returns what http.Client.Do does.
type Send func(*http.Request) (*http.Response, error)

// Run plays a story with the variables that are set before it begins. The error
// names the line at which it went wrong.
func (s *Story) Run(ctx context.Context, send Send, vars map[string]string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := &run{Story: s, ctx: ctx, send: send, vars: map[string]string{}, streams: map[string]*stream{}}
	for k, v := range vars {
		r.vars[k] = v
	}
	err := r.play()
	for _, w := range r.streams {
		w.close()
	}
	if err != nil {
		return fmt.Errorf("%s:%d: %w", s.file, s.first+r.at, err)
	}
	return nil
}

// run is a story while it is played.
type run struct {
	*Story
	ctx     context.Context
	send    Send
	at      int
	vars    map[string]string
	streams map[string]*stream
}

// line returns the next line with variables filled in; ok is false at the end.
func (r *run) line() (string, bool) {
	if r.at == len(r.lines) {
		return "", false
	}
	r.at++
	return r.fill(r.lines[r.at-1]), true
}

var variable = regexp.MustCompile(`\$\{\w+\}`)

func (r *run) fill(line string) string {
	return variable.ReplaceAllStringFunc(line, func(ref string) string {
		if v, ok := r.vars[ref[2:len(ref)-1]]; ok {
			return v
		}
		return ref
	})
}

func (r *run) play() error {
	for {
		line, ok := r.line()
		var err error
		switch {
		case !ok:
			return nil
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "@"):
			err = r.directive(strings.Fields(line))
		case strings.HasPrefix(line, "> "), strings.HasPrefix(line, ">> "):
			err = r.request(line)
		default:
			err = fmt.Errorf("not understood: %q", line)
		}
		if err != nil {
			return err
		}
	}
}

func (r *run) directive(words []string) error {
	if len(words) < 2 {
		return fmt.Errorf("not understood: %s", words)
	}
	if words[0] == "@watch" {
		w, err := r.open(words[2])
		r.streams[words[1]] = w
		return err
	}
	w := r.streams[words[1]]
	if w == nil {
		return fmt.Errorf("there is no watch %s", words[1])
	}
	switch words[0] {
	case "@event":
		got, err := w.next(r.ctx)
		if want := `{"type":"` + words[2] + `"`; err == nil && !strings.HasPrefix(got, want) {
			return fmt.Errorf("want %s, got %q", want, got)
		}
		return errors.Join(err, lacks(got, words[3:]))
	case "@skip-until":
		for {
			got, err := w.next(r.ctx)
			if err != nil {
				return err
			}
			if got == "" {
				return errors.New("the stream ended")
			}
			if lacks(got, words[2:]) == nil {
				return nil
			}
		}
	case "@end":
		got, err := w.next(r.ctx)
		if got != "" {
			return fmt.Errorf("want the end, got %s", got)
		}
		return err
	case "@close":
		w.close()
		return nil
	}
	return fmt.Errorf("unknown directive %s", words[0])
}

func lacks(got string, fragments []string) error {
	for _, f := range fragments {
		if !strings.Contains(got, f) {
			return fmt.Errorf("no %s in %s", f, clip(got))
		}
	}
	return nil
}

var pad = regexp.MustCompile(`<<(.)\*(\d+)>>`)

// padded replaces <<x*1000>> by a thousand x.
func padded(s string) string {
	return pad.ReplaceAllStringFunc(s, func(m string) string {
		g := pad.FindStringSubmatch(m)
		n, _ := strconv.Atoi(g[2])
		return strings.Repeat(g[1], n)
	})
}

// request plays a request and what is expected of its answer.
func (r *run) request(first string) error {
	mark, rest, _ := strings.Cut(first, " ")
	method, path, ok := strings.Cut(rest, " ")
	if !ok {
		return errors.New("a request is METHOD PATH")
	}
	header, body := http.Header{}, []string(nil)
	for {
		line, ok := r.line()
		if !ok {
			return errors.New("a request without an answer")
		}
		if h, ok := strings.CutPrefix(line, "> "); ok {
			name, value, _ := strings.Cut(h, ": ")
			header.Add(name, value)
			continue
		}
		if code, ok := strings.CutPrefix(line, "< "); ok {
			return r.until(mark == ">>", method, padded(path), header, padded(strings.Join(body, "\n")), code)
		}
		body = append(body, line)
	}
}

// until sends a request and checks its answer, again and again if it may be.
func (r *run) until(again bool, method, path string, header http.Header, body, code string) error {
	ctx, cancel := context.WithTimeout(r.ctx, Patience)
	defer cancel()
	expect := r.expectations()
	for {
		w, answer, err := r.do(ctx, method, path, header, body)
		if err == nil {
			err = r.check(code, expect, w, answer)
		}
		if err == nil || !again {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %s: %w", Patience, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (r *run) do(ctx context.Context, method, path string, header http.Header, body string) (*http.Response, string, error) {
	u, err := url.Parse(path)
	if err != nil {
		return nil, "", err
	}
	req := (&http.Request{Method: method, URL: u, Header: header.Clone(), ContentLength: int64(len(body))}).WithContext(ctx)
	if body != "" {
		req.Body = io.NopCloser(strings.NewReader(body))
	}
	w, err := r.send(req)
	if err != nil {
		return nil, "", fmt.Errorf("%s %s: %w", method, path, err)
	}
	defer w.Body.Close()
	answer, err := io.ReadAll(w.Body)
	if err != nil {
		return nil, "", fmt.Errorf("%s %s: read the answer: %w", method, path, err)
	}
	return w, string(answer), nil
}
