package hostile

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// hookRequest is what an AdmissionReview asks about.
type hookRequest struct {
	UID       string
	Name      string
	Namespace string
	DryRun    bool
}

// hookServer serves webhooks, each at a path of its own.
type hookServer struct {
	http *httptest.Server
	mux  *http.ServeMux
}

func startHooks(t *testing.T) *hookServer {
	t.Helper()
	h := &hookServer{mux: http.NewServeMux()}
	h.http = httptest.NewTLSServer(h.mux)
	t.Cleanup(func() {
		h.http.CloseClientConnections()
		h.http.Close()
	})
	return h
}

// on has a path answered by a function of the request.
func (h *hookServer) on(path string, answer func(w http.ResponseWriter, r *http.Request, q hookRequest)) {
	h.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		var review struct{ Request hookRequest }
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer(w, r, review.Request)
	})
}

// review is an AdmissionReview that allows.
func allowed(q hookRequest, more string) string {
	return fmt.Sprintf(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":true%s}}`, q.UID, more)
}

// patching allows with a patch.
func patching(patch string) func(http.ResponseWriter, *http.Request, hookRequest) {
	more := `,"patchType":"JSONPatch","patch":"` + base64.StdEncoding.EncodeToString([]byte(patch)) + `"`
	return func(w http.ResponseWriter, _ *http.Request, q hookRequest) { fmt.Fprint(w, allowed(q, more)) }
}

// webhook is one of a configuration, about creates of ConfigMaps whose label w is label. more are
// fields beside.
func (h *hookServer) webhook(name, path, label string, more map[string]any) map[string]any {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.http.Certificate().Raw})
	w := map[string]any{
		"name": name + ".hostile.test", "sideEffects": "None", "admissionReviewVersions": []string{"v1"}, "timeoutSeconds": 2,
		"clientConfig":   map[string]any{"url": h.http.URL + path, "caBundle": ca},
		"rules":          []any{map[string]any{"apiGroups": []string{""}, "apiVersions": []string{"v1"}, "operations": []string{"CREATE"}, "resources": []string{"configmaps"}}},
		"objectSelector": map[string]any{"matchLabels": map[string]any{"w": label}},
	}
	for k, v := range more {
		w[k] = v
	}
	return w
}

const hookPath = "/apis/admissionregistration.k8s.io/v1/"

// configure makes a configuration of a kind ("mutating" or "validating"), which the end of the test deletes.
func configure(t *testing.T, n *cluster.Node, kind, name string, webhooks ...any) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"name": name}, "webhooks": webhooks})
	must.OK(t, err)
	path := hookPath + kind + "webhookconfigurations"
	if code, answer := n.Send(t, http.MethodPost, path, string(body)); code != 201 {
		t.Fatalf("%d %s", code, answer)
	}
	t.Cleanup(func() {
		if code, answer := n.Send(t, http.MethodDelete, path+"/"+name, ""); code != 200 {
			t.Errorf("%d %s", code, answer)
		}
	})
}

const mapsPath = "/api/v1/namespaces/default/configmaps"

func labelled(name, label string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"w":%q}},"data":{"a":"b"}}`, name, label)
}

// bomb is 256 MiB, packed.
var bomb = sync.OnceValue(func() []byte {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	for range 256 {
		_, _ = z.Write(make([]byte, 1<<20)) // into memory
	}
	_ = z.Close()
	return packed.Bytes()
})

// hostileHooks are webhooks that answer what hurts, and what comes of a create that they are
// asked about.
var hostileHooks = []struct {
	name, kind string
	answer     func(w http.ResponseWriter, r *http.Request, q hookRequest)
	code       int
	text       string
}{
	{"endless", "validating", func(w http.ResponseWriter, r *http.Request, _ hookRequest) {
		for r.Context().Err() == nil {
			_, _ = w.Write([]byte(" "))
			w.(http.Flusher).Flush()
			select {
			case <-r.Context().Done():
			case <-time.After(10 * time.Millisecond):
			}
		}
		panic(http.ErrAbortHandler) // and not the end of an answer, which the node may still take
	}, 500, "context deadline exceeded"},
	{"silent", "validating", func(_ http.ResponseWriter, r *http.Request, _ hookRequest) {
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	}, 500, "context deadline exceeded"},
	{"huge", "validating", func(w http.ResponseWriter, _ *http.Request, _ hookRequest) { _, _ = w.Write(make([]byte, 9<<20)) }, 500, "the answer has more than 8388608 bytes"},
	{"bomb", "validating", func(w http.ResponseWriter, _ *http.Request, _ hookRequest) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(bomb())
	}, 500, "the answer has more than 8388608 bytes"},
	{"redirect", "validating", func(w http.ResponseWriter, r *http.Request, _ hookRequest) {
		http.Redirect(w, r, "/allow", http.StatusTemporaryRedirect)
	}, 500, "failed calling webhook"},
	{"deep", "validating", func(w http.ResponseWriter, _ *http.Request, q hookRequest) {
		fmt.Fprint(w, allowed(q, `,"auditAnnotations":`+strings.Repeat("[", 1<<20)+strings.Repeat("]", 1<<20)))
	}, 500, "failed calling webhook"},
	{"warnings", "validating", func(w http.ResponseWriter, _ *http.Request, q hookRequest) {
		fmt.Fprint(w, allowed(q, `,"warnings":["`+strings.Repeat("w", 7<<20)+`"]`))
	}, 201, ""},
	{"annotations", "validating", func(w http.ResponseWriter, _ *http.Request, q hookRequest) {
		fmt.Fprint(w, allowed(q, `,"auditAnnotations":{"a":"`+strings.Repeat("w", 7<<20)+`"}`))
	}, 201, ""},
	{"refusal", "validating", func(w http.ResponseWriter, _ *http.Request, q hookRequest) {
		fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":false,"status":{"message":%q}}}`, q.UID, strings.Repeat("w", 7<<20))
	}, 400, "denied the request: ww"},
	{"many-operations", "mutating", patching("[" + strings.Repeat(`{"op":"add","path":"/data/x","value":"y"},`, 9_999) + `{"op":"remove","path":"/data/a"}]`), 201, `"x":"y"`},
	{"too-many-operations", "mutating", patching(`[{"op":"add","path":"/data/l","value":[]}` + strings.Repeat(`,{"op":"add","path":"/data/l/0","value":1}`, 100_000) + "]"), 500,
		"the patch: the answer would take"},
	{"doubling", "mutating", patching(`[{"op":"add","path":"/x","value":["` + strings.Repeat("x", 1000) + `"]}` + strings.Repeat(`,{"op":"copy","from":"/x","path":"/x/-"}`, 40) + "]"), 500,
		"Unable to complete the copy, the accumulated size increase of copy is"},
	{"value", "mutating", patching(`[{"op":"add","path":"/data/x","value":"` + strings.Repeat("x", 5<<20) + `"}]`), 422, "Too long: may not be more than 1048576 bytes"},
	{"deep-patch", "mutating", patching(`[{"op":"add","path":"/data/x","value":` + strings.Repeat("[", 1<<20) + strings.Repeat("]", 1<<20) + `}]`), 500, ""},
	{"no-object", "mutating", patching(`[{"op":"replace","path":"","value":[]}]`), 500, ""},
	{"no-kind", "mutating", patching(`[{"op":"remove","path":"/kind"}]`), 201, `"kind":"ConfigMap"`},
	{"null", "mutating", patching(`[{"op":"replace","path":"","value":null}]`), 500, ""},
	{"no-metadata", "mutating", patching(`[{"op":"remove","path":"/metadata"}]`), 0, ""},
}

// TestHostileWebhooks: whatever a webhook answers, the create ends in bounded time, with a Status
// that says why, and is not half done; other writes go on, and nothing is left.
func TestHostileWebhooks(t *testing.T) {
	n := cluster.Start(t, 1).Nodes()[0]
	h := startHooks(t)
	bomb() // before its time counts
	h.on("/allow", func(w http.ResponseWriter, _ *http.Request, q hookRequest) { fmt.Fprint(w, allowed(q, "")) })
	hooks := map[string][]any{}
	for _, x := range hostileHooks {
		h.on("/"+x.name, x.answer)
		hooks[x.kind] = append(hooks[x.kind], h.webhook(x.name, "/"+x.name, x.name, nil))
	}
	for kind, all := range hooks {
		configure(t, n, kind, "hostile", all...)
	}
	n.Send(t, http.MethodPost, mapsPath, labelled("warm", "none"))
	calm, before := resourcesNow(t, n), n.Resident(t)
	watch := cluster.WatchResident(t, n)
	for _, x := range hostileHooks {
		t.Run(x.name, func(t *testing.T) {
			began := time.Now()
			resp, answer, err := n.Do(t, http.MethodPost, mapsPath, labelled(x.name, x.name))
			took := time.Since(began)
			must.OK(t, err)
			code := resp.StatusCode
			t.Logf("%d in %s, %d bytes, %.200s", code, took.Round(time.Millisecond), len(answer), answer)
			if x.code != 0 && code != x.code || code == 0 || !strings.Contains(string(answer), x.text) {
				t.Errorf("%d %.300s, want %d %s", code, answer, x.code, x.text)
			}
			//wall: a webhook has two seconds, and what it answers for ever would have no end
			if took > 8*time.Second {
				t.Errorf("took %s", took)
			}
			if code >= 400 {
				var status struct{ Kind, Message, Reason string }
				if err := json.Unmarshal(answer, &status); err != nil || status.Kind != "Status" || status.Message == "" {
					t.Errorf("no Status: %v %.300s", err, answer)
				}
			}
			want := 404
			if code == 201 {
				want = 200
			}
			if got, _ := n.Send(t, http.MethodGet, mapsPath+"/"+x.name, ""); got != want {
				t.Errorf("a read of it: %d, want %d", got, want)
			}
			if got, answer := n.Send(t, http.MethodPost, mapsPath+"?dryRun=All", labelled("other", "none")); got != 201 {
				t.Errorf("another write: %d %s", got, answer)
			}
		})
	}
	watch.Stop()
	t.Logf("resident: %d MiB before, %d MiB at the most", before>>20, watch.Peak.Load()>>20)
	if grown := watch.Peak.Load() - before; grown > 300<<20 {
		t.Errorf("the node grew by %d MiB", grown>>20)
	}
	if panics, _ := n.LookupMetric(t, "quorate_panics_total"); panics != 0 {
		t.Errorf("%v panics", panics)
	}
	h.http.CloseClientConnections()
	awaitCalm(t, n, calm)
}

// awaitCalm waits until a node has no more than it had.
func awaitCalm(t *testing.T, n *cluster.Node, calm resources) {
	t.Helper()
	cluster.Await(t, 30*time.Second, n.Name+" has let go of everything", func() string {
		n.HTTP(t).CloseIdleConnections()
		if now := resourcesNow(t, n); now.goroutines > calm.goroutines+10 || now.descriptors > calm.descriptors+5 {
			return fmt.Sprintf("%+v, before it was %+v", now, calm)
		}
		return ""
	})
}

// TestManyWebhooks: 500 webhooks of each kind on one resource. All are asked about one create,
// the mutating ones in order; one deadline holds for all of them; those that are about another
// resource do not count.
func TestManyWebhooks(t *testing.T) {
	const many = 500
	n := cluster.Start(t, 1).Nodes()[0]
	h := startHooks(t)
	var asked, open, most atomic.Int64
	enter := func() func() {
		asked.Add(1)
		now := open.Add(1)
		for was := most.Load(); now > was && !most.CompareAndSwap(was, now); was = most.Load() {
		}
		return func() { open.Add(-1) }
	}
	h.on("/allow/{i}", func(w http.ResponseWriter, _ *http.Request, q hookRequest) {
		defer enter()()
		fmt.Fprint(w, allowed(q, ""))
	})
	h.on("/count/{i}", func(w http.ResponseWriter, r *http.Request, q hookRequest) {
		defer enter()()
		i, _ := strconv.Atoi(r.PathValue("i"))
		patching(fmt.Sprintf(`[{"op":"test","path":"/data/last","value":"%d"},{"op":"replace","path":"/data/last","value":"%d"}]`, i, i+1))(w, r, q)
	})
	h.on("/grow/{i}", func(w http.ResponseWriter, r *http.Request, q hookRequest) {
		defer enter()()
		patching(fmt.Sprintf(`[{"op":"add","path":"/data/g%d","value":"%s"}]`, asked.Load(), strings.Repeat("x", 1<<20)))(w, r, q)
	})
	h.on("/slow/{i}", func(_ http.ResponseWriter, r *http.Request, _ hookRequest) {
		defer enter()()
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	})
	create := func(name, label, query string) (int, string, time.Duration) {
		t.Helper()
		asked.Store(0)
		most.Store(0)
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		began, cpu := time.Now(), n.CPU(t)
		code, answer, err := n.Exchange(ctx, n.HTTP(t), http.MethodPost, mapsPath+query, "application/json",
			fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"w":%q}},"data":{"last":"0"}}`, name, label))
		took := time.Since(began)
		must.OK(t, err)
		t.Logf("%s: %d in %s, %s of CPU, %d asked, %d at a time; %.160s", name, code, took.Round(time.Millisecond), n.CPU(t)-cpu, asked.Load(), most.Load(), answer)
		return code, answer, took
	}
	before := n.Resident(t)
	calm := resourcesNow(t, n)
	_, _, alone := create("alone", "none", "")
	configure(t, n, "validating", "validates", h.many(many, "/allow", "validates", map[string]any{"timeoutSeconds": 30})...)
	configure(t, n, "validating", "slow-validates", h.many(many, "/slow", "slow-validates", map[string]any{"failurePolicy": "Ignore"})...)
	_, _, beside := create("beside", "none", "")
	t.Logf("a create that 1,000 selectors do not match: %s, without them %s", beside, alone)
	if code, _, _ := create("validated", "validates", ""); code != 201 || asked.Load() != many {
		t.Errorf("%d, %d asked", code, asked.Load())
	}
	//wall: the timeouts of the webhooks, one after the other, would take far longer
	if code, answer, took := create("slowly-validated", "slow-validates", ""); code != 201 || took > 20*time.Second {
		t.Errorf("%d %s in %s: they are asked side by side", code, answer, took)
	}
	configure(t, n, "mutating", "mutates", h.many(many, "/count", "mutates", map[string]any{"timeoutSeconds": 10})...)
	configure(t, n, "mutating", "slow-mutates", h.many(many, "/slow", "slow-mutates", map[string]any{"failurePolicy": "Ignore", "timeoutSeconds": 1})...)
	configure(t, n, "mutating", "grows", h.many(many, "/grow", "grows", map[string]any{"timeoutSeconds": 10})...)
	if code, answer, _ := create("mutated", "mutates", "?timeout=60s"); code != 201 || !strings.Contains(answer, `"last":"500"`) || most.Load() != 1 {
		t.Errorf("%d %s, %d at a time", code, answer, most.Load())
	}
	//wall: the timeouts of the webhooks, one after the other, would take far longer
	if code, answer, took := create("slowly-mutated", "slow-mutates", "?timeout=4s"); code != 504 || took > 8*time.Second || !strings.Contains(answer, `"reason":"Timeout"`) {
		t.Errorf("%d %s in %s: one deadline holds for all", code, answer, took)
	}
	watch := cluster.WatchResident(t, n)
	//wall: the timeouts of the webhooks, one after the other, would take far longer
	if code, answer, took := create("grown", "grows", ""); code != 500 || took > 40*time.Second || !strings.Contains(answer, "patches have made the object more than 8388608 bytes larger") {
		t.Errorf("%d %.300s in %s: it grows for ever", code, answer, took)
	}
	watch.Stop()
	for _, name := range []string{"slowly-mutated", "grown"} {
		if code, _ := n.Send(t, http.MethodGet, mapsPath+"/"+name, ""); code != 404 {
			t.Errorf("%s is there: %d", name, code)
		}
	}
	t.Logf("resident: %d MiB before, %d MiB at the most", before>>20, watch.Peak.Load()>>20)
	if grown := watch.Peak.Load() - before; grown > 400<<20 {
		t.Errorf("the node grew by %d MiB", grown>>20)
	}
	h.http.CloseClientConnections()
	awaitCalm(t, n, calm)
}

// many are webhooks with a URL of their own each, so that none shares a client with another.
func (h *hookServer) many(n int, path, label string, more map[string]any) (all []any) {
	for i := range n {
		all = append(all, h.webhook(fmt.Sprintf("%s-%03d", label, i), fmt.Sprintf("%s/%d", path, i), label, more))
	}
	return all
}

// TestWebhookCallsBack: a webhook that writes what it is asked about, before it answers, waits
// for itself. Its calls end by their deadlines, other writes go on, and nothing is left. If its
// server does not notice that nobody waits for an answer any more, it goes on asking itself
// until its configuration is gone; as many of its calls are open as fit into their deadline.
func TestWebhookCallsBack(t *testing.T) {
	n := cluster.Start(t, 1).Nodes()[0]
	h := startHooks(t)
	client := n.NewHTTP(t, "h2")
	var asked, open, most atomic.Int64
	// settled waits until no call is answered. Calls of requests that have just ended may still come, so it has
	// to be so for five looks. (A WaitGroup must not be added to while it is waited for.)
	settled := func() {
		for quiet := 0; quiet < 5; time.Sleep(20 * time.Millisecond) {
			if quiet++; open.Load() > 0 {
				quiet = 0
			}
		}
	}
	back := func(w http.ResponseWriter, ctx context.Context, q hookRequest) {
		i := asked.Add(1)
		now := open.Add(1)
		defer open.Add(-1)
		for was := most.Load(); now > was && !most.CompareAndSwap(was, now); was = most.Load() {
		}
		label, _, _ := strings.Cut(q.Name, "-")
		code, answer, err := n.Exchange(ctx, client, http.MethodPost, mapsPath, "application/json", labelled(fmt.Sprintf("%s-%d", label, i), label))
		if err != nil || code != 201 {
			fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":false,"status":{"message":%q}}}`, q.UID, fmt.Sprintf("%d %.100s %v", code, answer, err))
			return
		}
		fmt.Fprint(w, allowed(q, ""))
	}
	h.on("/back", func(w http.ResponseWriter, r *http.Request, q hookRequest) { back(w, r.Context(), q) })
	h.on("/forth", func(w http.ResponseWriter, _ *http.Request, q hookRequest) { back(w, t.Context(), q) })
	calm := resourcesNow(t, n)
	for _, label := range []string{"back", "forth"} {
		t.Run(label, func(t *testing.T) {
			asked.Store(0)
			most.Store(0)
			configure(t, n, "validating", label, h.webhook(label, "/"+label, label, map[string]any{
				"namespaceSelector": map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": "default"}},
			}))
			began := time.Now()
			done := make(chan struct{})
			go func() { // ends with the create that waits for itself
				defer close(done)
				code, answer := n.Send(t, http.MethodPost, mapsPath, labelled(label, label))
				t.Logf("%d %s after %s", code, answer, time.Since(began).Round(time.Millisecond))
				if code != 500 || !strings.Contains(string(answer), `failed calling webhook \"`+label) || !strings.Contains(string(answer), "context deadline exceeded") {
					t.Errorf("%d %s", code, answer)
				}
			}()
			var slowest time.Duration
			for going := true; going; {
				select {
				case <-done:
					going = time.Since(began) < 5*time.Second && label == "forth"
				default:
				}
				at := time.Now()
				if code, answer := n.Send(t, http.MethodPost, mapsPath+"?dryRun=All", labelled("other", "none")); code != 201 {
					t.Errorf("another write meanwhile: %d %s", code, answer)
				}
				slowest = max(slowest, time.Since(at))
				time.Sleep(20 * time.Millisecond) // a rate, no wait for anything
			}
			t.Logf("asked %d times, %d at a time; the slowest other write took %s", asked.Load(), most.Load(), slowest.Round(time.Millisecond))
			if label == "forth" {
				return // without its configuration the last write is made, and those before it that still wait are allowed
			}
			settled()
			var list struct{ Items []json.RawMessage }
			if err := json.Unmarshal(n.MustGet(t, mapsPath+"?labelSelector=w="+label), &list); err != nil || len(list.Items) > 0 {
				t.Errorf("%d objects are there, %v", len(list.Items), err)
			}
		})
		settled() // the configuration is gone
	}
	client.CloseIdleConnections()
	h.http.CloseClientConnections()
	awaitCalm(t, n, calm)
}
