package story

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Patience bounds every wait of a story.
const Patience = 15 * time.Second

// Send sends a request, whose URL has no host, and returns what http.Client.Do does.
type Send func(*http.Request) (*http.Response, error)

// Run plays a story with the variables that are set before it begins; vars stays as it
// is. The error names the line at which it went wrong.
func (s *Story) Run(ctx context.Context, send Send, vars map[string]string) error {
	ctx, cancel := context.WithCancel(ctx)
	r := &run{ctx: ctx, send: send, patience: cmp.Or(s.Patience, Patience), once: s.Once, vars: map[string]string{}, streams: map[string]*stream{}}
	defer r.close()
	defer cancel()
	maps.Copy(r.vars, vars)
	for _, step := range s.steps {
		r.line = step.line
		if err := step.play(r); err != nil {
			return fmt.Errorf("%s:%d: %w", s.file, r.line, err)
		}
	}
	return nil
}

// run is a story while it is played.
type run struct {
	ctx      context.Context
	send     Send
	patience time.Duration
	once     bool
	line     int // where it is
	vars     map[string]string
	streams  map[string]*stream
}

// close ends the watches and awaits their readers.
func (r *run) close() {
	for _, s := range r.streams {
		s.close()
	}
}

var errUnset = errors.New("there is no such variable")

func (r *run) fill(text string) (string, error) { return Fill(text, r.vars) }

// Fill replaces the variables of a text.
func Fill(text string, vars map[string]string) (string, error) {
	var err error
	filled := variable.ReplaceAllStringFunc(text, func(ref string) string {
		v, ok := vars[ref[2:len(ref)-1]]
		if !ok {
			err = fmt.Errorf("%s: %w", ref, errUnset)
		}
		return v
	})
	return filled, err
}

var pad = regexp.MustCompile(`<<(.+?)\*(\d+)>>`)

// longest is what a request's path or body may become.
const longest = 64 << 20

// repeated replaces <<x*1000>> by a thousand x.
func repeated(text string) (string, error) {
	var err error
	return pad.ReplaceAllStringFunc(text, func(m string) string {
		g := pad.FindStringSubmatch(m)
		n, tooMany := strconv.Atoi(g[2])
		if tooMany != nil || n > longest/len(g[1]) {
			err = fmt.Errorf("%s is too long", m)
			return ""
		}
		return strings.Repeat(g[1], n)
	}), err
}
