package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// request is one of a story, with variables.
type request struct {
	name         string // of its heading; "" if it is not recorded
	again        bool   // kube-apiserver is sent it until the answer is as awaited
	method, path string
	header       [][2]string
	body         string
	captures     []capture
	awaited      []awaited
}

// capture sets a variable to a pattern's first group.
type capture struct {
	name    string
	pattern *regexp.Regexp
}

// awaited is a line about the answer to a request that is repeated.
type awaited struct {
	mark byte
	want string
}

// answer is a whole one.
type answer struct {
	code   int
	header http.Header
	body   []byte
}

// missing says what an answer lacks of what is awaited, or "".
func (q *request) missing(a *answer) string {
	for _, w := range q.awaited {
		name, value, isHeader := strings.Cut(w.want, ": ")
		switch {
		case w.mark == '<' && isHeader:
			if !strings.Contains(strings.Join(a.header.Values(name), "\n"), value) {
				return fmt.Sprintf("no header %s", w.want)
			}
		case w.mark == '<':
			if strconv.Itoa(a.code) != w.want {
				return fmt.Sprintf("status %d, want %s", a.code, w.want)
			}
		case strings.Contains(string(a.body), w.want) != (w.mark == '~'):
			return fmt.Sprintf("%c %s does not hold", w.mark, w.want)
		}
	}
	return ""
}

// send sends the request to a server and reads the answer.
func (q *request) send(ctx context.Context, s *server, fill func(string) (string, error)) (*answer, error) {
	path, err := fill(q.path)
	if err != nil {
		return nil, err
	}
	text, err := fill(q.body)
	if err != nil {
		return nil, err
	}
	header := http.Header{}
	for _, h := range q.header {
		value, err := fill(h[1])
		if err != nil {
			return nil, err
		}
		header.Add(h[0], value)
	}
	if header.Get("Content-Type") == "" && text != "" {
		header.Set("Content-Type", "application/json")
		if q.method == http.MethodPatch {
			header.Set("Content-Type", "application/merge-patch+json")
		}
	}
	body := []byte(text)
	kind := header.Get("Content-Type")
	if asWritten := strings.Contains(kind, ";"); !asWritten && (strings.Contains(kind, "json") || strings.Contains(kind, "yaml")) {
		if body, err = yaml.YAMLToJSON(body); err != nil {
			return nil, fmt.Errorf("the body: %w", err)
		}
	}
	if header.Get("Impersonate-User") == "" {
		// The administrators of the two servers have different names.
		header.Set("Impersonate-User", "admin")
		header.Set("Impersonate-Group", "system:masters")
	}
	if header.Get("User-Agent") == "" {
		header.Set("User-Agent", "golden") // managedFields name it
	}
	return s.do(ctx, q.method, path, header, body)
}

func (s *server) do(ctx context.Context, method, path string, header http.Header, body []byte) (*answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(string(body)))
	if err != nil {
		return nil, err
	}
	if header != nil {
		req.Header = header
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: read the answer: %w", method, path, err)
	}
	return &answer{code: resp.StatusCode, header: resp.Header, body: got}, nil
}

// decoded is the body as JSON, or as text if it is something else.
func (a *answer) decoded() any {
	if len(a.body) == 0 {
		return nil
	}
	var v any
	if json.Unmarshal(a.body, &v) != nil {
		return string(a.body)
	}
	return v
}
