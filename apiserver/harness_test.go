package apiserver_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/apiserver/auth"
	"github.com/quorate/quorate/apiserver/controllers"
	"github.com/quorate/quorate/apiserver/crd"
	"github.com/quorate/quorate/apiserver/kinds"
	"github.com/quorate/quorate/apiserver/rbac"
	"github.com/quorate/quorate/consistency"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/memstore"
)

// patience bounds every wait of a test.
const patience = 10 * time.Second

// env is a server on a memory store.
type env struct {
	t      testing.TB
	mem    *memstore.Store
	api    *apiserver.Server
	http   *httptest.Server
	url    string // of the server that is asked
	client *http.Client
	store  apiserver.Store
	reads  apiserver.Reads
	// definitions are the resources that are served at the time.
	definitions func() *kinds.Registry
}

// admin is everybody, with every permission.
type admin struct{}

func (admin) Authenticate(r *http.Request) (*auth.User, error) {
	if name := r.Header.Get("Test-User"); name != "" {
		return &auth.User{Name: name, Groups: []string{auth.Authenticated}}, nil
	}
	if r.Header.Get("Test-Unauthorized") != "" {
		return nil, auth.ErrUnauthorized
	}
	return &auth.User{Name: "admin", Groups: []string{auth.Masters, auth.Authenticated}}, nil
}

func newEnv(t testing.TB, change func(*apiserver.Config)) *env {
	t.Helper()
	mem := memstore.New()
	reader := consistency.NewReader(mem, consistency.Options{Grace: -1, UnconfirmedTimeout: 100 * time.Millisecond})
	registry, err := kinds.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	roles := rbac.New(mem, slog.New(slog.NewTextHandler(io.Discard, nil)))
	definitions := crd.New(mem, registry, slog.Default())
	cfg := apiserver.Config{
		Authorizer: auth.Roles(roles, roles.Empty), Roles: roles,
		Store: mem, Reads: reader,
		Kinds: definitions.Current, Definitions: definitions,
		Authenticator: admin{},
		Discovery:     http.NotFoundHandler(),
	}
	if change != nil {
		change(&cfg)
	}
	api, err := apiserver.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	e := &env{t: t, mem: mem, definitions: definitions.Current, api: api, store: cfg.Store, reads: cfg.Reads, http: httptest.NewUnstartedServer(api)}
	e.http.EnableHTTP2 = true
	e.http.StartTLS()
	e.url, e.client = e.http.URL, e.http.Client()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := api.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		e.http.Close()
		reader.Close()
		if err := mem.Close(); err != nil {
			t.Errorf("close store: %v", err)
		}
	})
	if err := api.EnsureNamespaces(context.Background()); err != nil {
		t.Fatal(err)
	}
	return e
}

// those are the controllers that change nothing but what clients made.
var those = []controllers.Name{controllers.NamespaceController, controllers.GarbageController, controllers.EventTTLController}

// runControllers runs what a leader runs until the end of the test.
func (e *env) runControllers() {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for name, run := range controllers.Make(e.api, e.api.Objects(), controllers.Servers{}, those) {
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := run(ctx, slog.Default()); ctx.Err() == nil {
					e.t.Logf("%s begins anew: %v", name, err)
				}
			}
		})
	}
	e.t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
}

// lead runs the loops of the leader's node that scenarios need, until the test ends.
func (e *env) lead() {
	ctx, resign := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := controllers.SettleDefinitions(ctx, e.api, slog.Default()); !errors.Is(err, context.Canceled) {
			e.t.Errorf("settle definitions: %v", err)
		}
	})
	e.t.Cleanup(func() {
		resign()
		wg.Wait()
	})
}

// do sends a request and returns the whole answer.
func (e *env) do(method, path string, header http.Header, body string) (*http.Response, string) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, e.url+path, strings.NewReader(body))
	if err != nil {
		e.t.Fatal(err)
	}
	for k, v := range header {
		r.Header[k] = v
	}
	w, err := e.client.Do(r)
	if err != nil {
		e.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer w.Body.Close()
	b, err := io.ReadAll(w.Body)
	if err != nil {
		e.t.Fatalf("%s %s: read answer: %v", method, path, err)
	}
	return w, string(b)
}

// stream is an open watch.
type stream struct {
	cancel context.CancelFunc
	events chan string
}

func (e *env) watch(path string) *stream {
	e.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, e.http.URL+path, nil)
	if err != nil {
		e.t.Fatal(err)
	}
	w, err := e.http.Client().Do(r)
	if err != nil {
		e.t.Fatal(err)
	}
	if w.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(w.Body)
		e.t.Fatalf("watch %s: %d %s", path, w.StatusCode, b)
	}
	s := &stream{cancel: cancel, events: make(chan string, 1024)}
	e.t.Cleanup(cancel)
	go func() {
		defer close(s.events)
		defer w.Body.Close()
		lines := bufio.NewReader(w.Body)
		for {
			line, err := lines.ReadString('\n')
			if line != "" {
				s.events <- line
			}
			if err != nil {
				return
			}
		}
	}()
	return s
}

// next returns the next event, or "" at the end of the stream.
func (e *env) next(s *stream) string {
	e.t.Helper()
	select {
	case line := <-s.events:
		return line
	case <-time.After(patience):
		e.t.Fatal("no event came")
		return ""
	}
}

// TestScenarios runs testdata/*.txt. See testdata/README.md for the language.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			newScenario(t, file, string(text)).run()
		})
	}
}

type scenario struct {
	*env
	t       *testing.T
	file    string
	lines   []string
	at      int
	vars    map[string]string
	streams map[string]*stream
	limits  apiserver.Limits
	// controllers run beside the server; ttl is that of Events.
	controllers bool
	ttl         time.Duration
	hook        *convertHook
}

func newScenario(t *testing.T, file, text string) *scenario {
	return &scenario{t: t, file: file, lines: strings.Split(text, "\n"), vars: map[string]string{}, streams: map[string]*stream{},
		limits: apiserver.Limits{Bookmark: time.Hour}}
}

func (s *scenario) fatalf(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("%s:%d: %s", s.file, s.at, fmt.Sprintf(format, args...))
}

func (s *scenario) start() {
	if s.env == nil {
		s.env = newEnv(s.t, func(c *apiserver.Config) {
			c.Limits, c.GarbageCollector, c.EventTTL = s.limits, s.controllers, s.ttl
		})
		if s.controllers {
			s.env.runControllers()
		}
		s.env.lead()
	}
}

// line returns the next line with variables filled in; ok is false at the end.
func (s *scenario) line() (string, bool) {
	if s.at == len(s.lines) {
		return "", false
	}
	s.at++
	return variable.ReplaceAllStringFunc(s.lines[s.at-1], func(ref string) string {
		if v, ok := s.vars[ref[2:len(ref)-1]]; ok {
			return v
		}
		return ref
	}), true
}

var variable = regexp.MustCompile(`\$\{\w+\}`)

func (s *scenario) run() {
	for {
		line, ok := s.line()
		switch {
		case !ok:
			return
		case strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "@"):
			s.directive(strings.Fields(line))
		case strings.HasPrefix(line, "> "):
			s.request(line[2:])
		default:
			s.fatalf("not understood: %q", line)
		}
	}
}

func (s *scenario) directive(words []string) {
	defer func(at int) {
		if s.t.Failed() {
			s.t.Logf("%s:%d", s.file, at)
		}
	}(s.at)
	switch words[0] {
	case "@bookmarks":
		d, err := time.ParseDuration(words[1])
		if err != nil {
			s.fatalf("%v", err)
		}
		s.limits.Bookmark = d
		return
	case "@controllers":
		s.controllers = true
		return
	case "@conversion-timeout":
		d, err := time.ParseDuration(words[1])
		if err != nil {
			s.fatalf("%v", err)
		}
		s.limits.Conversion = d
		return
	case "@event-ttl":
		d, err := time.ParseDuration(words[1])
		if err != nil {
			s.fatalf("%v", err)
		}
		s.ttl = d
		return
	}
	s.start()
	switch words[0] {
	case "@watch":
		s.streams[words[1]] = s.env.watch(words[2])
	case "@event":
		got := s.env.next(s.streams[words[1]])
		if want := `{"type":"` + words[2] + `"`; !strings.HasPrefix(got, want) {
			s.fatalf("want %s, got %q", want, got)
		}
		for _, fragment := range words[3:] {
			if !strings.Contains(got, fragment) {
				s.fatalf("no %s in %s", fragment, got)
			}
		}
	case "@skip-until":
		for {
			got := s.env.next(s.streams[words[1]])
			if got == "" {
				s.fatalf("the stream ended")
			}
			if containsAll(got, words[2:]) {
				return
			}
		}
	case "@end":
		if got := s.env.next(s.streams[words[1]]); got != "" {
			s.fatalf("want the end, got %s", got)
		}
	case "@ended":
		for s.env.next(s.streams[words[1]]) != "" {
		}
	case "@close":
		s.streams[words[1]].cancel()
	case "@sleep-second":
		// The times of managedFields are whole seconds; two in a row must differ.
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
	case "@webhook", "@calls":
		s.webhook(words)
	case "@gone":
		s.until(words[1], func(code int, _ string) bool { return code == http.StatusNotFound })
	case "@until":
		s.until(words[1], func(code int, body string) bool { return code == http.StatusOK && containsAll(body, words[2:]) })
	case "@compact":
		n, err := strconv.ParseUint(words[1], 10, 64)
		if err != nil {
			s.fatalf("%v", err)
		}
		if err := s.mem.Compact(context.Background(), proto.Revision(n)); err != nil {
			s.fatalf("%v", err)
		}
	default:
		s.fatalf("unknown directive %s", words[0])
	}
}

// until awaits that a GET of a path gives what is wanted.
func (s *scenario) until(path string, wanted func(code int, body string) bool) {
	deadline := time.Now().Add(patience)
	for {
		w, body := s.do(http.MethodGet, path, nil, "")
		if wanted(w.StatusCode, body) {
			return
		}
		if time.Now().After(deadline) {
			s.fatalf("%s stayed %d %s", path, w.StatusCode, clip(body))
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func containsAll(s string, fragments []string) bool {
	for _, f := range fragments {
		if !strings.Contains(s, f) {
			return false
		}
	}
	return true
}

var pad = regexp.MustCompile(`<<(.+?)\*(\d+)>>`)

// padded replaces <<x*1000>> by a thousand x.
func padded(s string) string {
	return pad.ReplaceAllStringFunc(s, func(m string) string {
		g := pad.FindStringSubmatch(m)
		n, _ := strconv.Atoi(g[2])
		return strings.Repeat(g[1], n)
	})
}

func (s *scenario) request(first string) {
	s.start()
	method, path, ok := strings.Cut(first, " ")
	if !ok {
		s.fatalf("a request is METHOD PATH")
	}
	begin := s.at
	header := http.Header{}
	var body []string
	for {
		line, ok := s.line()
		if !ok {
			s.fatalf("the request of line %d has no answer", begin)
		}
		if name, value, ok := strings.Cut(strings.TrimPrefix(line, "> "), ": "); ok && strings.HasPrefix(line, "> ") {
			header.Set(name, value)
			continue
		}
		if strings.HasPrefix(line, "< ") {
			w, answer := s.do(method, padded(path), header, padded(strings.Join(body, "\n")))
			s.expect(line[2:], w, answer)
			return
		}
		body = append(body, line)
	}
}

func (s *scenario) expect(code string, w *http.Response, answer string) {
	if got := strconv.Itoa(w.StatusCode); got != code {
		s.fatalf("status %s, want %s\n%s", got, code, clip(answer))
	}
	var fields []string
	defer func() { s.expectFields(fields, answer) }()
	for s.at < len(s.lines) && s.lines[s.at] != "" && strings.ContainsRune("<~!=$%", rune(s.lines[s.at][0])) {
		line, _ := s.line()
		mark, rest, _ := strings.Cut(line, " ")
		switch mark {
		case "%":
			fields = append(fields, rest)
		case "<":
			name, value, _ := strings.Cut(rest, ": ")
			if got := strings.Join(w.Header.Values(name), "\n"); !strings.Contains(got, value) || got == "" {
				s.fatalf("header %s: %q, want %q", name, got, value)
			}
		case "~":
			if !strings.Contains(answer, rest) {
				s.fatalf("no %s in\n%s", rest, clip(answer))
			}
		case "!":
			if strings.Contains(answer, rest) {
				s.fatalf("%s in\n%s", rest, clip(answer))
			}
		case "=":
			if strings.TrimSuffix(answer, "\n") != rest {
				s.fatalf("got\n%s\nwant\n%s", clip(answer), rest)
			}
		default:
			s.capture(mark[1:], rest, answer)
		}
	}
}

// expectFields compares the managedFields of an answer, if any are expected.
func (s *scenario) expectFields(want []string, answer string) {
	if want == nil {
		return
	}
	slices.Sort(want)
	got, err := fieldsOf(answer)
	if err != nil || !slices.Equal(got, want) {
		s.fatalf("managedFields (%v)\n%s\nwant\n%s", err, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// capture sets a variable to a pattern's first group.
func (s *scenario) capture(name, pattern, answer string) {
	m := regexp.MustCompile(pattern).FindStringSubmatch(answer)
	if len(m) < 2 {
		s.fatalf("%s does not match\n%s", pattern, clip(answer))
	}
	s.vars[name] = m[1]
}

func clip(s string) string {
	if len(s) > 4000 {
		return s[:4000] + "..."
	}
	return s
}

// field reads a JSON answer's value at a path.
func field(t testing.TB, answer string, path ...string) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader([]byte(answer)))
	var at any
	if err := d.Decode(&at); err != nil {
		t.Fatalf("%v in %s", err, clip(answer))
	}
	for _, p := range path {
		m, _ := at.(map[string]any)
		at = m[p]
	}
	return at
}
