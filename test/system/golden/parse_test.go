package main

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/kubeapiserver"
)

// TestMistakes reads what is no story.
func TestMistakes(t *testing.T) {
	const request = "== a: A\n> GET /a\n"
	for _, x := range []struct{ text, want string }{
		{"", "s.txt: nothing is recorded: there is no heading"},
		{"> GET /a\n", "s.txt: nothing is recorded: there is no heading"},
		{"== A: Capitals\n> GET /a\n", "s.txt:1: not a heading: == A: Capitals"},
		{request + request, "s.txt:3: there are two requests a"},
		{"== a: A\n== b: B\n> GET /a\n", "s.txt:2: there is no request below the heading a"},
		{"== a: A\n", "s.txt: there is no request below the heading a"},
		{"== a: A\n@gone /a\n", "s.txt:2: there is no request below the heading a"},
		{"hello\n", `s.txt:1: not understood: "hello"`},
		{"> GET a\n", "s.txt:1: a request is METHOD PATH, got GET a"},
		{request + "< 200\n", "s.txt:3: what is expected (<, ~, !) is said of a request that is repeated (>>), and of no other"},
		{"== a: A\n>> GET /a\n", "s.txt:2: what is expected (<, ~, !) is said of a request that is repeated (>>), and of no other"},
		{request + "$x (\n", "s.txt:3: error parsing regexp"},
		{request + "$x abc\n", "s.txt:3: abc has no group for ${x}"},
		{request + "@flag --a=b\n", "s.txt:3: @flag comes before the first request"},
		{"@flag a\n" + request, "s.txt:1: a flag is --NAME=VALUE, got a"},
		{"@file a\nx\n@file a\nx\n" + request, "s.txt:3: there are two files a"},
		{"@webhook a\ncode: 500\n@webhook a\ncode: 500\n" + request, "s.txt:3: there are two webhooks a"},
		{"@webhook a\nrecord: true\n" + request, "s.txt:2: a webhook without a response, a body or a code"},
		{"@webhook a\nresponce: {}\n" + request, "s.txt:2: a webhook: "},
		{"@webhook a\ncode: 500\ndelay: long\n" + request, "s.txt:3: a webhook: "},
		{"@wait 1\n" + request, "s.txt:1: unknown directive @wait"},
		{"@until\n" + request, "s.txt:1: want @until PATH FRAGMENTS..., got @until"},
	} {
		_, err := parseStory("s.txt", x.text)
		if err == nil || !strings.HasPrefix(err.Error(), x.want) {
			t.Errorf("%q\ngot  %v\nwant %s", x.text, err, x.want)
		}
	}
}

// TestNormalize replaces what differs from run to run, and nothing else.
func TestNormalize(t *testing.T) {
	for _, x := range []struct{ body, want string }{
		{`{"metadata":{"name":"a","uid":"0a1b2c3d-0000-4000-8000-0123456789ab","resourceVersion":"17"}}`, `metadata.name "a" metadata.resourceVersion "<version>" metadata.uid "<uid>"`},
		{`{"resourceVersion":""}`, `resourceVersion ""`},
		{`{"rows":[{"cells":["a","17s","x 1s",2]}],"timeout":"1s"}`, `rows[0].cells[0] "a" rows[0].cells[1] "<age>" rows[0].cells[2] "x 1s" rows[0].cells[3] 2 timeout "1s"`},
		{`{"generateName":"a-","name":"a-x7k2q"}`, `generateName "a-" name "a-<random>"`},
		{`{"generateName":"a-","name":"b-x7k2q"}`, `generateName "a-" name "b-x7k2q"`},
		{`{"message":"uid 0a1b2c3d-0000-4000-8000-0123456789ab, not 5"}`, `message "uid <uid>, not 5"`},
		{`{"at":"2026-01-02T03:04:05Z","micro":"2026-01-02T03:04:05.678901Z"}`, `at "<time>" micro "<time>"`},
		{`{"clusterIP":"None","clusterIPs":["10.0.0.7"],"ports":[{"nodePort":30001,"port":80}]}`, `clusterIP "None" clusterIPs[0] "<ip>" ports[0].nodePort "<port>" ports[0].port 80`},
		{`{"message":"Post \"https://127.0.0.1:40123/deny?timeout=1s\": dial tcp 127.0.0.1:1: refused"}`, `message "Post \"https://127.0.0.1:<port>/deny?timeout=1s\": dial tcp 127.0.0.1:1: refused"`},
		{`{"managedFields":[{"manager":"m","operation":"Apply","apiVersion":"v1","time":"2026-01-02T03:04:05Z","subresource":"status","fieldsV1":{"f:a":{}}}]}`, `managedFields[0] "m Apply v1 status {\"f:a\":{}}"`},
		{`{"managedFields":[{"manager":"z","operation":"Update","apiVersion":"v1"},{"manager":"a","operation":"Update","apiVersion":"v1"}]}`, `managedFields[0] "a Update v1 null" managedFields[1] "z Update v1 null"`},
		{`{"list":[],"map":{},"nothing":null,"yes":true}`, `list [] map {} nothing null yes true`},
		{`no JSON`, ` "no JSON"`},
	} {
		leaves := flatten("", normalize(decoded(x.body)), nil)
		slices.Sort(leaves)
		if got := strings.Join(leaves, " "); got != x.want {
			t.Errorf("%s\ngot  %s\nwant %s", x.body, got, x.want)
		}
	}
}

// TestBlocks writes a golden file and reads it again.
func TestBlocks(t *testing.T) {
	all := []block{
		{Name: "a", Status: 200, Body: map[string]any{"k": "v", "empty": map[string]any{}}},
		{Name: "b", Status: 429, RetryAfter: "1", Warnings: []string{`299 - "w"`}, Audit: map[string]string{"x/y": "z"}, Webhooks: []any{"deny: CREATE"}, Body: "text\n== no heading"},
		{Name: "c", Status: 200},
	}
	text, err := encode("Head.", all)
	must.OK(t, err)
	read, err := decode(text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if !reflect.DeepEqual(read, all) {
		t.Errorf("%s\ngot  %+v\nwant %+v", text, read, all)
	}
}

// TestVersion: what golden files say of themselves is what tools/peers pins.
func TestVersion(t *testing.T) {
	mod, err := os.ReadFile("../../../tools/peers/go.mod")
	must.OK(t, err)
	if want := "k8s.io/kubernetes v" + kubeapiserver.Version; !strings.Contains(string(mod), want) {
		t.Errorf("tools/peers/go.mod does not have %q", want)
	}
}
