package imagepolicy

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/answers"
	"github.com/quorate/quorate/internal/must"
	"k8s.io/apimachinery/pkg/util/cache"
)

func TestLoad(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"{}", "{ 5m0s 30s 500ms false}"},
		{"imagePolicy: {kubeConfigFile: k, allowTTL: 1, denyTTL: 1800, retryBackoff: 1, defaultAllow: true}", "{k 1s 30m0s 1ms true}"},
		{`{"imagePolicy": {"allowTTL": -1, "denyTTL": -1, "retryBackoff": -1}}`, "{ 0s 0s 0s false}"},
		{"imagePolicy: {allowTTL: 1801}", "valid value is between 1s and 30m0s, got 30m1s"},
		{"imagePolicy: {denyTTL: -2}", "valid value is between 1s and 30m0s, got -2s"},
		{"imagePolicy: {retryBackoff: 300001}", "valid value is between 1ns and 5m0s, got 5m0.001s"},
		{"imagePolicy: {allowTTL: 18446744075}", "valid value is between 1s and 30m0s"}, // 1 s, if it overflows
		{"imagePolicy: {allowTTL: 5m}", "cannot unmarshal string"},
		{"a: [b", "error converting YAML to JSON"},
	} {
		s, err := load(strings.NewReader(c.text))
		got := fmt.Sprint(err)
		if err == nil {
			got = fmt.Sprint(*s)
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", c.text, got, c.want)
		}
	}
	if _, err := New(nil, nil); err == nil || err.Error() != "no config specified" {
		t.Error(err)
	}
	if _, err := New(strings.NewReader("imagePolicy: {kubeConfigFile: /nowhere}"), nil); err == nil || !strings.Contains(err.Error(), "/nowhere") {
		t.Error(err)
	}
}

// clock is one that tests move.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

// backend answers what serve does, and counts.
type backend struct {
	asked atomic.Int64
	serve func(w http.ResponseWriter, r *http.Request, image string)
}

// start returns a plugin that asks a backend.
func start(t *testing.T, b *backend, settings string) (*plugin, *clock) {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.asked.Add(1)
		var review struct {
			Spec struct{ Containers []struct{ Image string } }
		}
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || r.Header.Get("Authorization") != "Bearer secret" {
			http.Error(w, fmt.Sprint(err), http.StatusBadRequest)
			return
		}
		b.serve(w, r, review.Spec.Containers[0].Image)
	}))
	t.Cleanup(s.Close)
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{clusters: [{name: a, cluster: {server: "%s/x", certificate-authority-data: %s}}], users: [{name: a, user: {token: secret}}], contexts: [{name: a, context: {cluster: a, user: a}}], current-context: a}`, s.URL, ca)
	must.OK(t, os.WriteFile(path, []byte(text), 0o600))
	p, err := newPlugin(strings.NewReader("imagePolicy: {retryBackoff: 1, kubeConfigFile: "+path+settings+"}"), slog.New(slog.DiscardHandler))
	must.OK(t, err)
	c := &clock{time.Unix(1e9, 0)}
	p.kept = cache.NewLRUExpireCacheWithClock(maxKept, c)
	return p, c
}

func pod(image string) *admission.Attributes {
	a := &admission.Attributes{Operation: admission.Create, Namespace: "default", Name: "p"}
	a.Resource.Version, a.Resource.Resource, a.Kind.Version, a.Kind.Kind = "v1", "pods", "v1", "Pod"
	a.Object = map[string]any{"metadata": map[string]any{"name": "p"}, "spec": map[string]any{"containers": []any{map[string]any{"name": "c", "image": image}}}}
	return a
}

func TestHandles(t *testing.T) {
	for of, want := range map[string]bool{
		"CREATE pods": true, "UPDATE pods": true, "UPDATE pods ephemeralcontainers": true, "DELETE pods": false, "UPDATE pods status": false,
		"CREATE pods binding": false, "CONNECT pods exec": false, "CREATE configmaps": false,
	} {
		words := append(strings.Fields(of), "")
		a := &admission.Attributes{Operation: admission.Operation(words[0]), Subresource: words[2]}
		a.Resource.Resource = words[1]
		if got := (&plugin{}).Handles(a); got != want {
			t.Errorf("%s: %t", of, got)
		}
	}
}

// TestKept: answers are kept for as long as the settings say, large ones are not.
func TestKept(t *testing.T) {
	b := &backend{serve: func(w http.ResponseWriter, _ *http.Request, image string) {
		reason := ""
		if image == "large" {
			reason = strings.Repeat("x", maxKeptBytes)
		}
		fmt.Fprintf(w, `{"apiVersion":"imagepolicy.k8s.io/v1alpha1","kind":"ImageReview","status":{"allowed":%t,"reason":%q}}`, image != "deny", reason)
	}}
	p, c := start(t, b, ", allowTTL: 10, denyTTL: 5")
	for i, step := range []struct {
		image string
		after time.Duration
		asked int64
	}{
		{"allow", 0, 1}, {"allow", 10 * time.Second, 1}, {"allow", time.Second, 2}, {"deny", 0, 3}, {"deny", 5 * time.Second, 3},
		{"deny", time.Second, 4}, {"large", 0, 5}, {"large", 0, 6},
	} {
		c.now = c.now.Add(step.after)
		if err := p.Validate(t.Context(), pod(step.image)); (err != nil) != (step.image == "deny") {
			t.Errorf("%d %s: %v", i, step.image, err)
		}
		if n := b.asked.Load(); n != step.asked {
			t.Errorf("%d %s: asked %d times, want %d", i, step.image, n, step.asked)
		}
	}
	p, _ = start(t, b, ", allowTTL: -1")
	before := b.asked.Load()
	for range 2 {
		if err := p.Validate(t.Context(), pod("allow")); err != nil {
			t.Error(err)
		}
	}
	if n := b.asked.Load() - before; n != 2 {
		t.Errorf("asked %d times although nothing is kept", n)
	}
}

// TestKeptIsSmall: an answer of some bytes is kept without the question, which has the names of
// the images.
func TestKeptIsSmall(t *testing.T) {
	b := &backend{serve: func(w http.ResponseWriter, _ *http.Request, _ string) {
		fmt.Fprint(w, `{"apiVersion":"imagepolicy.k8s.io/v1alpha1","kind":"ImageReview","status":{"allowed":true}}`)
	}}
	p, _ := start(t, b, "")
	const images = 50
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	for i := range images {
		must.OK(t, p.Validate(t.Context(), pod(fmt.Sprint(i)+strings.Repeat("x", 1<<20))))
	}
	if grown := heap() - before; grown > images<<20/4 {
		t.Errorf("%d MiB are held for %d answers", grown>>20, images)
	}
	if b.asked.Load() != images {
		t.Errorf("asked %d times", b.asked.Load())
	}
	runtime.KeepAlive(p)
}

// TestFailures: what is no answer is a refusal, or is none; it is bounded in bytes and time.
func TestFailures(t *testing.T) {
	b := &backend{serve: func(w http.ResponseWriter, r *http.Request, image string) {
		switch image {
		case "broken":
			http.Error(w, "it broke", http.StatusInternalServerError)
		case "huge":
			_, _ = w.Write(make([]byte, 9<<20))
		case "head":
			w.Header().Set("X", strings.Repeat("a", answers.MaxHead))
		case "endless":
			for r.Context().Err() == nil {
				_, _ = w.Write([]byte(" "))
				w.(http.Flusher).Flush()
				time.Sleep(time.Millisecond)
			}
			panic(http.ErrAbortHandler) // and not the end of an answer, which the client may still take
		case "redirect":
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		case "slow":
			<-r.Context().Done()
			panic(http.ErrAbortHandler)
		}
	}}
	closed, _ := start(t, b, "")
	open, _ := start(t, b, ", defaultAllow: true")
	for _, c := range []struct {
		image, want string
		asked       int64
	}{
		{"broken", `pods "p" is forbidden: an error on the server ("it broke") has prevented the request from succeeding`, 5},
		{"huge", "the answer has more than 8388608 bytes", 1},
		{"head", "server response headers exceeded 65536 bytes", 1},
		{"endless", "context deadline exceeded", 1},
		{"redirect", `pods "p" is forbidden: `, 1},
		{"slow", "context deadline exceeded", 1},
	} {
		t.Run(c.image, func(t *testing.T) {
			for _, p := range []*plugin{closed, open} {
				before := b.asked.Load()
				within := 10 * time.Second
				if c.want == "context deadline exceeded" {
					within = 300 * time.Millisecond
				}
				ctx, cancel := context.WithTimeout(t.Context(), within)
				err := p.Validate(ctx, pod(c.image))
				cancel()
				if p == open && err != nil || p == closed && (err == nil || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("%v, want %s", err, c.want)
				}
				if n := b.asked.Load() - before; n != c.asked {
					t.Errorf("asked %d times, want %d", n, c.asked)
				}
			}
		})
	}
}
