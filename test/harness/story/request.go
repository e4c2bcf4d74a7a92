package story

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// request is a request and what is expected of its answer, with variables.
type request struct {
	again        bool // it is repeated until the answer is as expected
	method, path string
	header       [][2]string
	body         string
	status       expectation
	expect       []expectation
	name         string // of its heading, if its answer is recorded
	record       func(ctx context.Context, name string, a *Answer) error
}

// request reads what begins with "> " or ">> ".
func (p *parser) request(first string) (func(*run) error, error) {
	begin := p.at
	mark, rest, _ := strings.Cut(first, " ")
	method, path, ok := strings.Cut(rest, " ")
	if !ok || !strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "${") {
		return nil, fmt.Errorf("a request is METHOD PATH, got %s", rest)
	}
	q := &request{again: mark == ">>", method: method, path: path}
	if p.language.Record != nil {
		return p.recorded(q)
	}
	var body []string
	for {
		line, ok := p.line()
		if !ok || p.headings && heading.MatchString(line) {
			p.at = begin
			return nil, errors.New("the request has no answer")
		}
		if h, ok := strings.CutPrefix(line, "> "); ok {
			if !q.addHeader(h) {
				return nil, fmt.Errorf("a header is NAME: VALUE, got %s; the request of line %d has no answer yet", h, begin)
			}
			continue
		}
		if code, ok := strings.CutPrefix(line, "< "); ok {
			q.body = strings.Join(body, "\n")
			var err error
			if q.status, err = p.status(code); err != nil {
				return nil, err
			}
			q.expect, err = p.expectations()
			return q.play, err
		}
		body = append(body, line)
	}
}

// addHeader adds NAME: VALUE, if the text is that.
func (q *request) addHeader(text string) bool {
	name, value, ok := strings.Cut(text, ": ")
	if ok {
		q.header = append(q.header, [2]string{name, value})
	}
	return ok
}

// recorded reads the rest of a request whose answer is recorded if it has a heading.
func (p *parser) recorded(q *request) (func(*run) error, error) {
	for ; p.at < len(p.lines); p.at++ {
		if h, ok := strings.CutPrefix(p.lines[p.at], "> "); !ok || !q.addHeader(h) {
			break
		}
	}
	q.body = p.body()
	if p.at < len(p.lines) {
		if want, ok := strings.CutPrefix(p.lines[p.at], "< "); ok && code.MatchString(want) {
			p.at++
			q.status = expectation{line: p.at, want: want}
		}
	}
	var err error
	if q.expect, err = p.expectations(); err != nil {
		return nil, err
	}
	says := q.status.want != "" || slices.ContainsFunc(q.expect, func(e expectation) bool { return e.mark != '$' })
	if says != q.again {
		return nil, errors.New("what is expected (<, ~, !) is said of a request that is repeated (>>), and of no other")
	}
	q.name, q.record, p.heading = p.heading, p.language.Record, ""
	if !says && q.name == "" {
		q.status = expectation{line: p.at, want: success}
	}
	return q.play, nil
}

// Answer is a whole one.
type Answer struct {
	Code   int
	Header http.Header
	Body   string
}

// play sends a request and checks its answer, again and again if it may be.
func (q *request) play(r *run) error {
	begin := r.line
	filled, err := q.fill(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.ctx, r.patience)
	defer cancel()
	var failed error // by the last whole answer
	failedAt := begin
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		r.line = begin
		a, err := filled.send(ctx, r.send)
		if err == nil {
			err = q.check(r, a)
		}
		if err == nil && q.name != "" {
			err = q.record(ctx, q.name, a)
		}
		if err == nil || !q.again || r.once && q.record != nil || errors.Is(err, errUnset) {
			return err
		}
		if failed == nil || ctx.Err() == nil {
			failed, failedAt = err, r.line
		}
		select {
		case <-ctx.Done():
			r.line = failedAt
			return fmt.Errorf("not within %s: %w", r.patience, failed)
		case <-time.After(pause):
		}
	}
}

// fill is what is sent: the request without variables.
func (q *request) fill(r *run) (*request, error) {
	var errs []error
	fill := func(text string) string {
		filled, err := r.fill(text)
		errs = append(errs, err)
		return filled
	}
	long := func(text string) string {
		text, err := repeated(fill(text))
		errs = append(errs, err)
		return text
	}
	filled := &request{method: q.method, path: long(q.path), body: long(q.body)}
	for _, h := range q.header {
		filled.header = append(filled.header, [2]string{h[0], fill(h[1])})
	}
	return filled, errors.Join(errs...)
}

func (q *request) send(ctx context.Context, send Send) (*Answer, error) {
	req, err := newRequest(ctx, q.method, q.path, q.body)
	if err != nil {
		return nil, err
	}
	for _, h := range q.header {
		req.Header.Add(h[0], h[1])
	}
	w, err := send(req)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", q.method, clip(q.path), err)
	}
	defer w.Body.Close()
	body, err := io.ReadAll(w.Body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: read the answer: %w", q.method, clip(q.path), err)
	}
	return &Answer{w.StatusCode, w.Header, string(body)}, nil
}

// newRequest makes a request without a host. A path may begin with two slashes, which
// an URL's own parser takes for a host.
func newRequest(ctx context.Context, method, path, body string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://story", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	u, err := url.Parse("http://story" + path)
	if err != nil {
		return nil, err
	}
	u.Scheme, u.Host, req.URL, req.Host = "", "", u, ""
	return req, nil
}

func (r *run) awaitAnswer(args []string) error {
	return r.await(args[0], http.StatusOK, args[1:])
}

func (r *run) awaitGone(args []string) error {
	return r.await(args[0], http.StatusNotFound, nil)
}

// await repeats a GET until its answer is as wanted. Its words have no variables any more.
func (r *run) await(path string, code int, fragments []string) error {
	q := request{again: true, method: http.MethodGet, path: path, status: expectation{line: r.line, want: fmt.Sprint(code)}}
	for _, f := range fragments {
		q.expect = append(q.expect, expectation{line: r.line, mark: '~', want: f})
	}
	return q.play(r)
}
