// Command upstreamfacts writes down, one fact per line, what Kubernetes' own API
// server says in discovery and OpenAPI: the golden files that ours are compared
// with. It reads the documents that upstream publishes with its source (api/ in
// the module k8s.io/kubernetes) and keeps only what can be compared: names, types
// and rules, no descriptions.
//
//	go run . MODULE-DIRECTORY REPOSITORY-ROOT
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: upstreamfacts MODULE-DIRECTORY REPOSITORY-ROOT")
		os.Exit(2)
	}
	if err := run(filepath.Join(os.Args[1], "api"), filepath.Join(os.Args[2], "apiserver")); err != nil {
		fmt.Fprintln(os.Stderr, "upstreamfacts:", err)
		os.Exit(1)
	}
}

func run(api, apiserver string) error {
	lines, err := discoveryFacts(filepath.Join(api, "discovery"))
	if err != nil {
		return err
	}
	if err := write(filepath.Join(apiserver, "catalog", "discovery", "testdata", "upstream.txt"), lines); err != nil {
		return err
	}
	if lines, err = modelFacts(filepath.Join(api, "openapi-spec", "v3")); err != nil {
		return err
	}
	if err := write(filepath.Join(apiserver, "catalog", "openapi", "testdata", "models.txt"), lines); err != nil {
		return err
	}
	if lines, err = operationFacts(filepath.Join(api, "openapi-spec", "v3")); err != nil {
		return err
	}
	return write(filepath.Join(apiserver, "catalog", "openapi", "testdata", "operations.txt"), lines)
}

const head = `# Facts from the documents that Kubernetes publishes with its source, written by
# tools/upstreamfacts (make generate). Not to be edited: what differs here on
# purpose is listed in differences.txt.
`

func write(file string, lines []string) error {
	slices.Sort(lines)
	lines = slices.Compact(lines)
	var b bytes.Buffer
	b.WriteString(head)
	for _, l := range lines {
		b.WriteString(l)
		b.WriteByte('\n')
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}

func read(file string, into any) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}
