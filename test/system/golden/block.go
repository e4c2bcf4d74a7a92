package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// block is what came of a request.
type block struct {
	Name       string            `json:"-"`
	Status     int               `json:"status"`
	RetryAfter string            `json:"retryAfter,omitempty"`
	Warnings   []string          `json:"warnings,omitempty"` // the headers Warning
	Audit      map[string]string `json:"audit,omitempty"`    // the annotations of the audit event
	Webhooks   []any             `json:"webhooks,omitempty"` // what webhooks were asked
	Body       any               `json:"body,omitempty"`
}

// encode is the text of a golden file.
func encode(head string, blocks []block) (string, error) {
	var out strings.Builder
	out.WriteString("# " + head + "\n")
	for _, b := range blocks {
		fmt.Fprintf(&out, "\n== %s\nstatus: %d\n", b.Name, b.Status)
		// The short ones first; a body may be long.
		for _, part := range []map[string]any{
			{"retryAfter": b.RetryAfter}, {"warnings": b.Warnings}, {"audit": b.Audit}, {"webhooks": b.Webhooks}, {"body": b.Body},
		} {
			text, err := yaml.Marshal(part)
			if err != nil {
				return "", fmt.Errorf("%s: %w", b.Name, err)
			}
			if !slices.ContainsFunc([]string{`""`, "null", "{}", "[]"}, func(empty string) bool {
				return strings.HasSuffix(string(text), ": "+empty+"\n") && strings.Count(string(text), "\n") == 1
			}) {
				out.Write(text)
			}
		}
	}
	return out.String(), nil
}

// decode reads a golden file.
func decode(text string) ([]block, error) {
	var blocks []block
	for i, part := range strings.Split("\n"+text, "\n== ") {
		if i == 0 {
			continue // the comment at the head
		}
		name, rest, _ := strings.Cut(part, "\n")
		b := block{Name: name}
		if err := yaml.UnmarshalStrict([]byte(rest), &b); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		blocks = append(blocks, b)
	}
	return blocks, nil
}

// lines are the facts of blocks, each as a line: the request, the path of a field, its value.
func lines(blocks []block) ([]string, error) {
	var all []string
	for _, b := range blocks {
		// Through JSON, so that what was read and what was heard have the same types.
		raw, err := json.Marshal(b)
		if err != nil {
			return nil, err
		}
		var fields map[string]any
		if err := json.Unmarshal(raw, &fields); err != nil {
			return nil, err
		}
		for _, leaf := range flatten("", fields, nil) {
			all = append(all, b.Name+" "+leaf)
		}
	}
	return all, nil
}

// flatten adds "PATH VALUE" of every leaf. The order is not defined.
func flatten(path string, v any, to []string) []string {
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			to = flatten(strings.TrimPrefix(path+"."+name, "."), value, to)
		}
		if len(v) > 0 {
			return to
		}
	case []any:
		for i, value := range v {
			to = flatten(fmt.Sprintf("%s[%d]", path, i), value, to)
		}
		if len(v) > 0 {
			return to
		}
	}
	return append(to, path+" "+jsonOf(v))
}

// jsonOf is a value on one line, with < and > as they are.
func jsonOf(v any) string {
	var line strings.Builder
	e := json.NewEncoder(&line)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Sprint(v)
	}
	return strings.TrimSuffix(line.String(), "\n")
}
