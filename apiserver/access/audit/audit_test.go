package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/quorate/quorate/internal/must"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const testPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  nonResourceURLs: ["/healthz*"]
- level: RequestResponse
  resources: [{group: "", resources: [secrets]}]
  omitManagedFields: true
- level: Request
  users: [alice]
- level: Metadata
`

type counts struct {
	mu     sync.Mutex
	lost   map[string]int
	levels map[string]int
}

func (c *counts) AuditLevel(l string) { c.mu.Lock(); c.levels[l]++; c.mu.Unlock() }
func (c *counts) AuditEvent()         {}
func (c *counts) AuditLost(r string)  { c.mu.Lock(); c.lost[r]++; c.mu.Unlock() }

func newCounts() *counts { return &counts{lost: map[string]int{}, levels: map[string]int{}} }

func open(t *testing.T, c Config) *Log {
	t.Helper()
	dir := t.TempDir()
	c.PolicyFile = filepath.Join(dir, "policy.yaml")
	must.OK(t, os.WriteFile(c.PolicyFile, []byte(testPolicy), 0o600))
	if c.Path == "" {
		c.Path = filepath.Join(dir, "audit.log")
	}
	l, err := Open(c)
	must.OK(t, err)
	return l
}

func events(t *testing.T, file string) []auditv1.Event {
	t.Helper()
	b, err := os.ReadFile(file)
	must.OK(t, err)
	var out []auditv1.Event
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		var e auditv1.Event
		if err := json.Unmarshal(s.Bytes(), &e); err != nil {
			t.Fatalf("%s: %v", s.Text(), err)
		}
		out = append(out, e)
	}
	return out
}

func TestLevelsAndStages(t *testing.T) {
	seen := newCounts()
	file := filepath.Join(t.TempDir(), "a", "audit.log")
	l := open(t, Config{Path: file, Observe: seen})
	r := httptest.NewRequest("POST", "/api/v1/namespaces/ns/secrets?dryRun=All", nil)
	r.RemoteAddr = "192.0.2.7:1234"
	r.Header.Set("X-Forwarded-For", "198.51.100.1")
	e := l.Begin(r, "id-1", time.Now(), &Attributes{User: &User{Name: "bob", Groups: []string{"g"}}, Verb: "create", Namespace: "ns", APIVersion: "v1", Resource: "secrets"})
	e.Impersonated(&User{Name: "carol"}, "")
	e.Annotate("k8s.io/deprecated", "true")
	e.Annotate("k8s.io/deprecated", "false")
	e.Request([]byte(`{"metadata":{"name":"s","managedFields":[{}]},"data":{"a":"Yg=="}}`), false)
	e.Response([]byte(`{"items":[{"metadata":{"managedFields":[]}}]}`))
	e.Completed(201)
	if e := l.Begin(httptest.NewRequest("GET", "/healthz/ping", nil), "id-2", time.Now(), &Attributes{Verb: "get", Path: "/healthz/ping"}); e != nil {
		t.Error("a request of level None is followed")
	}
	alice := l.Begin(r, "id-3", time.Now(), &Attributes{User: &User{Name: "alice"}, Verb: "watch", APIVersion: "v1", Resource: "pods"})
	alice.Request([]byte("not json"), true)
	alice.Started(200)
	alice.Started(200)
	alice.Response([]byte("{}"))
	alice.Completed(200)
	other := l.Begin(r, "id-4", time.Now(), &Attributes{User: &User{Name: "dave"}, Verb: "create", APIVersion: "v1", Resource: "pods"})
	other.Request([]byte(`{"metadata":{"name":"p"}}`), false)
	other.Refused(&metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status"}, Status: "Failure", Reason: "Forbidden", Code: 403})
	other.Completed(403)
	l.Begin(r, "id-5", time.Now(), &Attributes{Verb: "get", Path: "/x"}).Panicked(errors.New("boom"))
	must.OK(t, l.Close())
	other.Completed(200) // after Close: lost, and no panic
	got := events(t, file)
	var lines []string
	for _, e := range got {
		lines = append(lines, string(e.AuditID)+" "+string(e.Level)+" "+string(e.Stage))
	}
	want := "id-1 RequestResponse ResponseComplete,id-3 Request ResponseStarted,id-3 Request ResponseComplete,id-4 Metadata ResponseComplete,id-5 Metadata Panic"
	if strings.Join(lines, ",") != want {
		t.Fatalf("%s, want %s", strings.Join(lines, ","), want)
	}
	first := got[0]
	if first.ObjectRef.Name != "s" || first.ResponseStatus.Code != 201 || first.ImpersonatedUser.Username != "carol" ||
		first.Annotations["k8s.io/deprecated"] != "true" || strings.Join(first.SourceIPs, " ") != "198.51.100.1 192.0.2.7" ||
		first.RequestURI != "/api/v1/namespaces/ns/secrets?dryRun=All" || first.Kind != "Event" || first.APIVersion != "audit.k8s.io/v1" {
		t.Errorf("%+v", first)
	}
	if s := string(first.RequestObject.Raw) + string(first.ResponseObject.Raw); strings.Contains(s, "managedFields") || !strings.Contains(s, "Yg==") {
		t.Errorf("bodies: %s", s)
	}
	if got[2].RequestObject != nil || got[2].ResponseObject != nil || got[3].RequestObject != nil || got[3].ObjectRef.Name != "p" {
		t.Errorf("%+v\n%+v", got[2], got[3])
	}
	if s := got[3].ResponseStatus; s.Code != 403 || s.Reason != "Forbidden" {
		t.Errorf("%+v", s)
	}
	if seen.levels["None"] != 1 || seen.lost["closed"] != 1 {
		t.Errorf("%+v", seen)
	}
}

// A writer that hangs holds no request up for longer than maxWait, and what waits
// for it is bounded.
func TestHungWriter(t *testing.T) { synctest.Test(t, hungWriter) }

func hungWriter(t *testing.T) {
	release := make(chan struct{})
	w := &hung{release: release, began: make(chan struct{}, 10)}
	seen := newCounts()
	q := newQueue(w, 100, seen, nil)
	q.add(make([]byte, 60)) // taken by the writer, which hangs
	<-w.began
	q.add(make([]byte, 40))
	start := time.Now()
	q.add(make([]byte, 1))
	if took := time.Since(start); took != maxWait {
		t.Errorf("waited %s", took)
	}
	if seen.lost["full"] != 1 {
		t.Errorf("%+v", seen.lost)
	}
	close(release)
	must.OK(t, q.close())
	if w.n != 100 {
		t.Errorf("%d bytes were written, want 100", w.n)
	}
}

type hung struct {
	release, began chan struct{}
	n              int
}

func (h *hung) Write(b []byte) (int, error) {
	h.began <- struct{}{}
	<-h.release
	h.n += len(b)
	return len(b), nil
}
func (h *hung) Close() error { return nil }

func TestRotation(t *testing.T) {
	dir := t.TempDir()
	w, err := openFile(filepath.Join(dir, "audit.log"), 100, 2, 0)
	must.OK(t, err)
	for range 20 {
		if _, err := w.Write(append(bytes.Repeat([]byte("x"), 39), '\n')); err != nil {
			t.Fatal(err)
		}
	}
	must.OK(t, w.Close())
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 3 {
		t.Fatalf("%v %v, want the log and two backups", files, err)
	}
	for _, f := range files {
		info, err := f.Info()
		if err != nil || info.Size() != 80 || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", f.Name(), info, err)
		}
	}
}

func TestPolicyErrors(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"no rules": "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: []",
		"level":    "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: All}]",
		"version":  "apiVersion: audit.k8s.io/v1beta1\nkind: Policy\nrules: [{level: None}]",
		"no yaml":  "\t",
	} {
		file := filepath.Join(dir, "policy.yaml")
		must.OK(t, os.WriteFile(file, []byte(text), 0o600))
		if _, err := Open(Config{PolicyFile: file, Path: filepath.Join(dir, "log")}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := Open(Config{PolicyFile: "/dev/zero", Path: filepath.Join(dir, "log")}); err == nil || err.Error() != "audit-policy-file: /dev/zero is not a file" {
		t.Error(err)
	}
	if _, err := Open(Config{Path: "x"}); err == nil {
		t.Error("no policy: no error")
	}
}

func TestNil(t *testing.T) {
	var l *Log
	e := l.Begin(httptest.NewRequest("GET", "/", nil), "", time.Now(), &Attributes{})
	e.Annotate("a", "b")
	e.Correct("a", "b")
	e.Request(nil, false)
	e.Response(nil)
	e.Refused(nil)
	e.Started(1)
	e.Completed(1)
	e.Panicked(nil)
	if err := l.Close(); err != nil || e != nil {
		t.Error(err)
	}
}
