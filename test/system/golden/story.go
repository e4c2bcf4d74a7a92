package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/quorate/quorate/test/harness/story"
)

// What bounds every wait of a story: kube-apiserver may need longer.
const (
	patience         = 10 * time.Second
	upstreamPatience = 30 * time.Second
)

// recording is a file of testdata that was read. It is played once.
type recording struct {
	*story.Story
	file     string
	flags    []string
	files    map[string]string
	webhooks map[string]webhookSpec

	// While it is played.
	server *server
	hooks  *webhooks
	blocks []block
}

// server is one that a story is told to.
type server struct {
	url      string
	client   *http.Client // with an administrator's certificate
	audit    *auditLog
	upstream bool // kube-apiserver: it learns of rules late, and has no controllers
}

func readStory(file string) (*recording, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read a story: %w", err)
	}
	return parseStory(file, string(text))
}

func parseStory(file, text string) (r *recording, err error) {
	r = &recording{file: file, files: map[string]string{}, webhooks: map[string]webhookSpec{}}
	r.Story, err = story.Language{
		Record: r.keep,
		Directives: []story.Directive{
			{Usage: "@plugins NAME...", Read: func(string, func() string) error { return nil }}, // for a test of package plugins
			{Usage: "@flag --NAME=VALUE", Read: r.readFlag},
			{Usage: "@file NAME", Read: r.readFile},
			{Usage: "@webhook NAME", Read: r.readWebhook},
			{Usage: "@controller METHOD PATH", Sent: func() bool { return r.server.upstream }},
		},
	}.Parse(file, text)
	return r, err
}

func (r *recording) readFlag(flag string, _ func() string) error {
	if !strings.HasPrefix(flag, "--") || !strings.Contains(flag, "=") {
		return fmt.Errorf("a flag is --NAME=VALUE, got %s", flag)
	}
	r.flags = append(r.flags, strings.TrimPrefix(flag, "--"))
	return nil
}

func (r *recording) readFile(name string, lines func() string) error {
	if r.files[name] != "" {
		return fmt.Errorf("there are two files %s", name)
	}
	r.files[name] = lines()
	return nil
}

func (r *recording) readWebhook(name string, lines func() string) (err error) {
	if _, ok := r.webhooks[name]; ok {
		return fmt.Errorf("there are two webhooks %s", name)
	}
	r.webhooks[name], err = parseWebhook(lines())
	return err
}

// play tells a story to a server, and returns what came of the requests with headings.
func (r *recording) play(ctx context.Context, to *server, hooks *webhooks) ([]block, error) {
	r.server, r.hooks, r.blocks = to, hooks, nil
	r.Patience, r.Once = patience, !to.upstream
	if to.upstream {
		r.Patience = upstreamPatience
	}
	err := r.Run(ctx, r.send, hooks.variables())
	return r.blocks, err
}

// send sends a request as an administrator, if it names no other user, with its body as JSON.
func (r *recording) send(req *http.Request) (*http.Response, error) {
	r.hooks.forget()
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	setDefault := func(name, value string) {
		if req.Header.Get(name) == "" {
			req.Header.Set(name, value)
		}
	}
	if len(body) > 0 && req.Method == http.MethodPatch {
		setDefault("Content-Type", "application/merge-patch+json")
	} else if len(body) > 0 {
		setDefault("Content-Type", "application/json")
	}
	kind := req.Header.Get("Content-Type")
	if asWritten := strings.Contains(kind, ";"); !asWritten && (strings.Contains(kind, "json") || strings.Contains(kind, "yaml")) {
		if body, err = yaml.YAMLToJSON(body); err != nil {
			return nil, fmt.Errorf("the body: %w", err)
		}
	}
	if req.Header.Get("Impersonate-User") == "" {
		// The administrators of the two servers have different names.
		req.Header.Set("Impersonate-User", "admin")
		req.Header.Set("Impersonate-Group", "system:masters")
	}
	setDefault("User-Agent", "golden") // managedFields name it
	to, err := http.NewRequestWithContext(req.Context(), req.Method, r.server.url+req.URL.RequestURI(), strings.NewReader(string(body)))
	if err != nil {
		return nil, err
	}
	to.Header = req.Header
	return r.server.client.Do(to)
}

// keep adds what came of a request.
func (r *recording) keep(ctx context.Context, name string, a *story.Answer) error {
	b := block{Name: name, Status: a.Code, RetryAfter: a.Header.Get("Retry-After"), Webhooks: r.hooks.asked(), Body: normalize(decoded(a.Body))}
	for _, w := range a.Header.Values("Warning") {
		b.Warnings = append(b.Warnings, normalText(w))
	}
	var err error
	if b.Audit, err = r.server.audit.annotations(ctx, a.Header.Get("Audit-Id")); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	r.blocks = append(r.blocks, b)
	return nil
}

// decoded is a body as JSON, or as text if it is something else.
func decoded(body string) any {
	if body == "" {
		return nil
	}
	var v any
	if json.Unmarshal([]byte(body), &v) != nil {
		return body
	}
	return v
}
