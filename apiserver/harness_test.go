package apiserver_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/access/rbac"
	"github.com/quorate/quorate/apiserver/backends/services"
	"github.com/quorate/quorate/apiserver/controllers"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/transport/listener"
	"github.com/quorate/quorate/apiserver/types/crd"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/consistency"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/raftstore/memstore"
)

// patience bounds every wait of a test.
const patience = time.Minute

// env is a server on a memory store.
type env struct {
	t      testing.TB
	mem    *memstore.Store
	api    *apiserver.Server
	http   *httptest.Server
	url    string // of the server that is asked
	client *http.Client
	store  apiserver.Store
	reads  objects.Reads
	// definitions are the resources that are served at the time.
	definitions *crd.Registry
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
	must.OK(t, err)
	roles := rbac.New(mem, slog.New(slog.NewTextHandler(io.Discard, nil)))
	definitions := crd.New(mem, registry, slog.Default())
	cfg := apiserver.Config{
		Authorizer: auth.Roles(roles, roles.Empty), Roles: roles,
		Store: mem, Reads: reader,
		Kinds:         definitions.Current,
		Resolve:       services.New(mem, false).Resolve,
		Authenticator: admin{},
		Discovery:     http.NotFoundHandler(),

		ResponseCompression: true, UnauthenticatedHTTP2DOSMitigation: true, WatchList: true,
	}
	if change != nil {
		change(&cfg)
	}
	api, err := apiserver.New(cfg)
	must.OK(t, err)
	e := &env{t: t, mem: mem, definitions: definitions, api: api, store: cfg.Store, reads: cfg.Reads, http: httptest.NewUnstartedServer(api)}
	e.http.EnableHTTP2 = true
	e.http.Config.ConnContext = listener.WithConn
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
	must.OK(t, controllers.EnsureNamespaces(context.Background(), api.Objects()))
	return e
}

// failures tells the log of a test which controllers failed.
type failures struct{ t testing.TB }

func (failures) ControllerRuns(string, bool)    {}
func (f failures) ControllerFailed(name string) { f.t.Logf("%s failed", name) }

// leading is a node that leads all the time.
type leading struct{}

func (leading) IsLeader() bool                 { return true }
func (leading) LeaderChanged() <-chan struct{} { return nil }

// run runs controllers until stop is called, or the test ends.
func (e *env) run(cfg controllers.Config) (stop func()) {
	cfg.Published, cfg.Definitions, cfg.Observer = e.mem.Published, e.definitions, failures{e.t}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := controllers.NewManager(e.api.Objects(), cfg).Run(ctx, leading{}); err != nil {
			e.t.Errorf("controllers: %v", err)
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
	})
	e.t.Cleanup(stop)
	return stop
}

// runControllers runs, until the end of the test, what changes nothing but what clients made.
func (e *env) runControllers() {
	e.run(controllers.Config{Controllers: []controllers.Name{controllers.NamespaceController, controllers.GarbageController, controllers.EventTTLController}})
}

// lead runs what scenarios need of the leader's node, until the test ends.
func (e *env) lead() {
	e.run(controllers.Config{Controllers: []controllers.Name{controllers.APIExtensionsController}})
}

// do sends a request and returns the whole answer.
func (e *env) do(method, path string, header http.Header, body string) (*http.Response, string) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, e.url+path, strings.NewReader(body))
	must.OK(e.t, err)
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
	must.OK(e.t, err)
	w, err := e.http.Client().Do(r)
	must.OK(e.t, err)
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
