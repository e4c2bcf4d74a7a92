package conversion

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/must"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var v2 = schema.GroupVersion{Group: "example.com", Version: "v2"}

func object(name string) map[string]any {
	return map[string]any{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": map[string]any{"name": name, "uid": "u-" + name}}
}

// answering serves a webhook that converts with f.
func answering(t *testing.T, f http.HandlerFunc) (*httptest.Server, *Webhook) {
	t.Helper()
	server := httptest.NewTLSServer(f)
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return server, Of("things.example.com", conversionOf(&apiextensions.WebhookClientConfig{URL: &server.URL, CABundle: ca}, "v1"))
}

func conversionOf(c *apiextensions.WebhookClientConfig, versions ...string) *apiextensions.CustomResourceConversion {
	return &apiextensions.CustomResourceConversion{
		Strategy: apiextensions.WebhookConverter,
		Webhook:  &apiextensions.WebhookConversion{ClientConfig: c, ConversionReviewVersions: versions},
	}
}

// convert answers a review in its own version.
func convert(w http.ResponseWriter, r *http.Request) {
	var review map[string]any
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	request := review["request"].(map[string]any)
	for _, o := range request["objects"].([]any) {
		o.(map[string]any)["apiVersion"] = request["desiredAPIVersion"]
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"kind": review["kind"], "apiVersion": review["apiVersion"],
		"response": map[string]any{"uid": request["uid"], "result": map[string]any{"status": "Success"}, "convertedObjects": request["objects"]},
	})
}

// Of reads a definition's conversion; what means the same has the same ID.
func TestOf(t *testing.T) {
	address, port, path := "https://example.com/c", int32(8443), "/convert"
	byURL := Of("a", conversionOf(&apiextensions.WebhookClientConfig{URL: &address, CABundle: []byte("  \n")}, "v1"))
	if byURL.URL != address || byURL.CABundle != nil {
		t.Errorf("by URL: %+v", byURL)
	}
	if again := Of("a", conversionOf(&apiextensions.WebhookClientConfig{URL: &address}, "v1")); again.ID() != byURL.ID() {
		t.Error("the same configuration has another ID")
	}
	if other := Of("b", conversionOf(&apiextensions.WebhookClientConfig{URL: &address}, "v1")); other.ID() == byURL.ID() {
		t.Error("another definition has the same ID")
	}
	service := Of("a", conversionOf(&apiextensions.WebhookClientConfig{Service: &apiextensions.ServiceReference{Namespace: "n", Name: "s", Port: &port, Path: &path}}, "v1"))
	if want := (Service{Namespace: "n", Name: "s", Port: 8443, Path: "/convert"}); *service.Service != want {
		t.Errorf("service %+v, want %+v", *service.Service, want)
	}
	if Of("a", nil) != nil || Of("a", &apiextensions.CustomResourceConversion{Strategy: apiextensions.NoneConverter}) != nil {
		t.Error("a webhook without one")
	}
}

// A list is one call, in order; v1beta1 is spoken with those who speak nothing else.
func TestConvertMany(t *testing.T) {
	var calls atomic.Int64
	_, hook := answering(t, func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		convert(w, r)
	})
	for _, versions := range [][]string{{"v1"}, {"v7", "v1beta1"}} {
		calls.Store(0)
		asked := *hook
		asked.ReviewVersions, asked.id = versions, versions[0]
		c := NewCaller(Config{})
		out, err := c.Convert(t.Context(), &asked, []map[string]any{object("a"), object("b"), object("c")}, v2)
		c.Close()
		must.OK(t, err)
		var names string
		for _, o := range out {
			if o["apiVersion"] != "example.com/v2" {
				t.Errorf("%v", o)
			}
			names += o["metadata"].(map[string]any)["name"].(string)
		}
		if names != "abc" || calls.Load() != 1 {
			t.Errorf("%q in %d calls", names, calls.Load())
		}
	}
	none := *hook
	none.ReviewVersions = []string{"v7"}
	if _, err := NewCaller(Config{}).Convert(t.Context(), &none, []map[string]any{object("a")}, v2); err == nil || err.Error() != "no supported conversion review versions" {
		t.Errorf("%v", err)
	}
}

// No more than Calls run at a time; who waits stops waiting with its context; and what
// answers hold is given back.
func TestConvertBounds(t *testing.T) {
	var running, most atomic.Int64
	release := make(chan struct{})
	_, hook := answering(t, func(w http.ResponseWriter, r *http.Request) {
		if n := running.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer running.Add(-1)
		<-release
		convert(w, r)
	})
	var observed atomic.Int64
	c := NewCaller(Config{Calls: 2, Observe: func(Call) { observed.Add(1) }})
	t.Cleanup(c.Close)
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			if _, err := c.Convert(t.Context(), hook, []map[string]any{object("a")}, v2); err != nil {
				t.Error(err)
			}
		})
	}
	for running.Load() < 2 {
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := c.Convert(ctx, hook, []map[string]any{object("a")}, v2); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a call that waits for its turn: %v", err)
	}
	close(release)
	wg.Wait()
	if most.Load() != 2 || observed.Load() != 6 || c.answers.held != 0 {
		t.Errorf("%d calls at a time, %d observed, %d bytes held", most.Load(), observed.Load(), c.answers.held)
	}
}

// Answers are bounded one by one and together.
func TestConvertBytes(t *testing.T) {
	_, hook := answering(t, func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(make([]byte, 100<<10)) })
	for name, test := range map[string]struct {
		cfg  Config
		want string
	}{
		"one": {Config{Answer: 50 << 10}, "the answer has more than 51200 bytes"},
		"all": {Config{Answers: 50 << 10}, errAnswers.Error()},
	} {
		c := NewCaller(test.cfg)
		if _, err := c.Convert(t.Context(), hook, []map[string]any{object("a")}, v2); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
		if c.answers.held != 0 {
			t.Errorf("%s: %d bytes held", name, c.answers.held)
		}
		c.Close()
	}
}

// TestConvertMemory: what an answer takes when it is decoded is bounded by what was sent, and given back.
func TestConvertMemory(t *testing.T) {
	_, hook := answering(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(`{"response":{"convertedObjects":[` + strings.Repeat("1,", 1<<20) + `1]}}`))
	})
	c := NewCaller(Config{})
	defer c.Close()
	for range 3 {
		if _, err := c.Convert(t.Context(), hook, []map[string]any{object("a")}, v2); err == nil || !strings.Contains(err.Error(), "MiB of memory") {
			t.Errorf("%v", err)
		}
	}
	if c.answers.held != 0 {
		t.Errorf("%d bytes held", c.answers.held)
	}
}

// A service is asked under its name, wherever it is.
func TestConvertService(t *testing.T) {
	server, hook := answering(t, convert)
	byName := *hook
	byName.URL, byName.Service, byName.id = "", &Service{Namespace: "n", Name: "s", Port: 443, Path: "convert"}, "service"
	c := NewCaller(Config{Resolve: func(_ context.Context, namespace, name string, port int32) (string, error) {
		if namespace != "n" || name != "s" || port != 443 {
			t.Errorf("asked for %s/%s:%d", namespace, name, port)
		}
		return server.Listener.Addr().String(), nil
	}})
	t.Cleanup(c.Close)
	_, err := c.Convert(t.Context(), &byName, []map[string]any{object("a")}, v2)
	// The certificate is another's: the name that is verified is the service's.
	if err == nil || !strings.Contains(err.Error(), "not s.n.svc") {
		t.Errorf("%v", err)
	}
	down := *hook
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	l.Close()
	down.URL, down.id = "https://"+l.Addr().String(), "down"
	if _, err := c.Convert(t.Context(), &down, []map[string]any{object("a")}, v2); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("%v", err)
	}
}

// Many ask for one value, and it is made once; a failure is only its maker's.
func TestCache(t *testing.T) {
	c := NewCache[int, string](100)
	var made atomic.Int64
	started, release := make(chan struct{}), make(chan struct{})
	slow := func(_ context.Context, _ []int) ([]string, []int64, error) {
		made.Add(1)
		close(started)
		<-release
		return []string{"one"}, []int64{40}, nil
	}
	var wg sync.WaitGroup
	ask := func(f func(context.Context, []int) ([]string, []int64, error)) {
		wg.Go(func() {
			if got, err := c.Get(t.Context(), []int{1, 1}, time.Minute, f); err != nil || got[0] != "one" || got[1] != "one" {
				t.Errorf("%v %v", got, err)
			}
		})
	}
	ask(slow)
	<-started
	for range 10 {
		ask(slow)
	}
	close(release)
	wg.Wait()
	if made.Load() != 1 {
		t.Errorf("made %d times", made.Load())
	}
	fail := errors.New("no")
	if _, err := c.Get(t.Context(), []int{2}, time.Minute, func(context.Context, []int) ([]string, []int64, error) { return nil, nil, fail }); !errors.Is(err, fail) {
		t.Errorf("%v", err)
	}
	put := func(key int) {
		if _, err := c.Get(t.Context(), []int{key}, time.Minute, func(context.Context, []int) ([]string, []int64, error) { return []string{"x"}, []int64{40}, nil }); err != nil {
			t.Error(err)
		}
	}
	// The bound: what was not used for the longest time goes.
	put(2)
	put(1)
	put(3)
	if got := c.Bytes(); got != 80 {
		t.Errorf("%d bytes", got)
	}
	gone := false
	if _, err := c.Get(t.Context(), []int{2}, time.Minute, func(context.Context, []int) ([]string, []int64, error) {
		gone = true
		return []string{"x"}, []int64{40}, nil
	}); err != nil || !gone {
		t.Errorf("the oldest is still there (%v)", err)
	}
}

// A claim whose maker fails is made by who waited for it.
func TestCacheFailedMaker(t *testing.T) {
	c := NewCache[int, string](100)
	started, release := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := c.Get(t.Context(), []int{1}, time.Minute, func(context.Context, []int) ([]string, []int64, error) {
			close(started)
			<-release
			return nil, nil, context.Canceled
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
	<-started
	wg.Go(func() {
		got, err := c.Get(t.Context(), []int{1}, time.Minute, func(context.Context, []int) ([]string, []int64, error) { return []string{"mine"}, []int64{1}, nil })
		if err != nil || got[0] != "mine" {
			t.Errorf("%v %v", got, err)
		}
	})
	close(release)
	wg.Wait()
}

// Who waits for another one's failure has what is left of its time: it waits once, not twice. A
// failure that comes early leaves it enough.
func TestCacheWaitsOnce(t *testing.T) {
	const timeout = 30 * time.Second
	for _, c := range []struct {
		name                    string
		failsAfter, takes, want time.Duration
		err                     error
	}{
		{"the maker hangs", timeout, timeout, timeout, ErrLate},
		{"the maker hangs, the webhook is there again", timeout, time.Second, 21 * time.Second, nil},
		{"the maker fails at once", 10 * time.Second, 25 * time.Second, 25 * time.Second, nil},
		{"the maker fails, then the webhook hangs", 15 * time.Second, time.Minute, timeout, ErrLate},
		{"nothing is left", 45 * time.Second, time.Second, 35 * time.Second, ErrLate},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cache := NewCache[int, string](100)
				produce := func(takes time.Duration, err error) func(context.Context, []int) ([]string, []int64, error) {
					return func(ctx context.Context, _ []int) ([]string, []int64, error) {
						select {
						case <-time.After(takes):
							return []string{"made"}, []int64{1}, err
						case <-ctx.Done():
							return nil, nil, context.Cause(ctx)
						}
					}
				}
				first := make(chan error, 1)
				go func() {
					_, err := cache.Get(t.Context(), []int{1}, timeout, produce(c.failsAfter, errors.New("no answer")))
					first <- err
				}()
				time.Sleep(10 * time.Second) // of the bubble's clock: the first is under way
				began := time.Now()
				_, err := cache.Get(t.Context(), []int{1}, timeout, produce(c.takes, nil))
				if took := time.Since(began); !errors.Is(err, c.err) || took != c.want {
					t.Errorf("after %s: %v, want %v after %s", took, err, c.err, c.want)
				}
				if err := <-first; err == nil {
					t.Error("the first did not fail")
				}
			})
		})
	}
}

// FuzzAnswer: whatever a webhook says, it is refused or has the object's identity.
func FuzzAnswer(f *testing.F) {
	f.Add(`{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","response":{"uid":"u","result":{"status":"Success"},"convertedObjects":[{"apiVersion":"example.com/v2","kind":"Thing","metadata":{"name":"a","uid":"u-a","labels":{"x":"y"}}}]}}`)
	f.Add(`{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","response":{"uid":"u","result":{"status":"Success"},"convertedObjects":[{"apiVersion":"example.com/v2","kind":"Thing","metadata":7},null]}}`)
	f.Fuzz(func(t *testing.T, body string) {
		for _, version := range []string{"v1", "v1beta1"} {
			a, err := read(version, []byte(body))
			if err != nil {
				continue
			}
			objects, err := a.converted(version, "u")
			if err != nil {
				continue
			}
			for _, o := range objects {
				in := object("a")
				out, err := check(in, o.Raw, v2, v2.WithKind("Thing"), "object", alone)
				if err != nil {
					continue
				}
				meta := out["metadata"].(map[string]any)
				if out["apiVersion"] != "example.com/v2" || out["kind"] != "Thing" || meta["name"] != "a" || meta["uid"] != "u-a" {
					t.Fatalf("accepted %v", out)
				}
			}
		}
	})
}
