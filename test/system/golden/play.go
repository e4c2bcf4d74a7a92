package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"
)

// What bounds every wait of a story: kube-apiserver may need longer.
const (
	patience         = 10 * time.Second
	upstreamPatience = 30 * time.Second
)

// server is one that a story is told to.
type server struct {
	url      string
	client   *http.Client // with an administrator's certificate
	audit    *auditLog
	upstream bool // kube-apiserver: it learns of rules late, and has no controllers
}

// player tells a story to a server.
type player struct {
	ctx    context.Context
	server *server
	hooks  *webhooks
	vars   map[string]string
	blocks []block
}

// play tells a story to a server, and returns what came of the requests with headings.
func (s *story) play(ctx context.Context, to *server, hooks *webhooks) ([]block, error) {
	p := &player{ctx: ctx, server: to, hooks: hooks, vars: maps.Clone(hooks.variables())}
	for _, step := range s.steps {
		if err := step.play(p); err != nil {
			return p.blocks, fmt.Errorf("%s:%d: %w", s.file, step.line, err)
		}
	}
	return p.blocks, nil
}

// fill replaces the variables of a text.
func (p *player) fill(text string) (string, error) { return fill(text, p.vars) }

func fill(text string, vars map[string]string) (string, error) {
	var err error
	filled := variable.ReplaceAllStringFunc(text, func(ref string) string {
		v, ok := vars[ref[2:len(ref)-1]]
		if !ok {
			err = fmt.Errorf("%s: there is no such variable", ref)
		}
		return v
	})
	return filled, err
}

// send sends a request, to kube-apiserver until its answer is as awaited.
func (p *player) send(q *request) (a *answer, err error) {
	missing := ""
	err = p.await(func(ctx context.Context) (bool, error) {
		p.hooks.forget()
		if a, err = q.send(ctx, p.server, p.fill); err != nil {
			return false, err
		}
		missing = q.missing(a)
		return missing == "" || !q.again || !p.server.upstream, nil
	})
	if err != nil {
		if missing != "" {
			err = fmt.Errorf("%w: %s: the last answer is %s", err, missing, a.body)
		}
		return nil, fmt.Errorf("%s %s: %w", q.method, q.path, err)
	}
	for _, c := range q.captures {
		m := c.pattern.FindSubmatch(a.body)
		if m == nil {
			return nil, fmt.Errorf("%s %s: $%s: %s does not match %s", q.method, q.path, c.name, c.pattern, a.body)
		}
		p.vars[c.name] = string(m[1])
	}
	return a, nil
}

// prepare sends a request that must succeed, or be answered as awaited.
func (p *player) prepare(q *request) error {
	a, err := p.send(q)
	if err != nil {
		return err
	}
	if q.again {
		if missing := q.missing(a); missing != "" {
			return fmt.Errorf("%s %s: %s: %s", q.method, q.path, missing, a.body)
		}
		return nil
	}
	if a.code >= 300 {
		return fmt.Errorf("%s %s: %d: %s", q.method, q.path, a.code, a.body)
	}
	return nil
}

// record sends a request and keeps what came of it.
func (p *player) record(q *request) error {
	a, err := p.send(q)
	if err != nil {
		return err
	}
	b := block{Name: q.name, Status: a.code, RetryAfter: a.header.Get("Retry-After"), Webhooks: p.hooks.asked()}
	for _, w := range a.header.Values("Warning") {
		b.Warnings = append(b.Warnings, normalText(w))
	}
	annotations, err := p.server.audit.annotations(p.ctx, a.header.Get("Audit-Id"))
	if err != nil {
		return fmt.Errorf("%s: %w", q.name, err)
	}
	b.Audit = annotations
	b.Body = normalize(a.decoded())
	p.blocks = append(p.blocks, b)
	return nil
}

func (p *player) until(path string, fragments []string) error {
	return p.awaitGet(path, func(a *answer) bool {
		for _, f := range fragments {
			if !strings.Contains(string(a.body), f) {
				return false
			}
		}
		return a.code == http.StatusOK
	})
}

func (p *player) gone(path string) error {
	return p.awaitGet(path, func(a *answer) bool { return a.code == http.StatusNotFound })
}

func (p *player) awaitGet(path string, holds func(*answer) bool) error {
	path, err := p.fill(path)
	if err != nil {
		return err
	}
	var last *answer
	err = p.await(func(ctx context.Context) (bool, error) {
		last, err = p.server.do(ctx, http.MethodGet, path, nil, nil)
		return err == nil && holds(last), err
	})
	if err != nil && last != nil {
		return fmt.Errorf("GET %s: %w: the last answer is %d %s", path, err, last.code, last.body)
	}
	return err
}

// await repeats until a condition holds or cannot be found out.
func (p *player) await(holds func(context.Context) (bool, error)) error {
	within := patience
	if p.server.upstream {
		within = upstreamPatience
	}
	return await(p.ctx, within, holds)
}

func await(ctx context.Context, within time.Duration, holds func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		ok, err := holds(ctx)
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %s", within)
		case <-time.After(pause):
		}
	}
}
