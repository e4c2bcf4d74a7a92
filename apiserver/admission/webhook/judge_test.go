package webhook

import (
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/admission"
	upstreams "github.com/quorate/quorate/apiserver/admission/upstream"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/state"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/memstore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
)

// judged is one case of TestJudge: webhooks, what they answer, and the write.
type judged struct {
	name string
	// hooks is what the webhooks have besides what all have, which is also what they are named by.
	hooks []string
	// serve answers the webhooks, by their index.
	serve func(w http.ResponseWriter, r *http.Request, hook int, uid string)
	write func(a *admission.Attributes)
	ctx   func(ctx context.Context) (context.Context, context.CancelFunc)
	// goes is how long after the webhook was asked the client goes, zero for never.
	goes time.Duration
	// again is done before a second round, if there is one.
	again func(a *admission.Attributes)
	only  string // Mutating or Validating
	// warms is for a write that only makes connections: nobody counts what comes of it.
	warms bool
}

// waits reports whether somebody waits in a case.
func (c *judged) waits() bool {
	return c.ctx != nil || c.goes != 0 || strings.Contains(strings.Join(c.hooks, ""), second)
}

const good = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"UID","allowed":true}}`

// says answers each review with a text.
func says(text string) func(http.ResponseWriter, *http.Request, int, string) {
	return func(w http.ResponseWriter, _ *http.Request, _ int, uid string) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, strings.ReplaceAll(text, "UID", uid))
	}
}

// responds answers with more members of the response.
func responds(members string) func(http.ResponseWriter, *http.Request, int, string) {
	return says(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"UID",` + members + `}}`)
}

func patches(text string) func(http.ResponseWriter, *http.Request, int, string) {
	return responds(`"allowed":true,"patchType":"JSONPatch","patch":"` + base64.StdEncoding.EncodeToString([]byte(text)) + `"`)
}

// headed answers well, with a header and a code.
func headed(code int, header ...string) func(http.ResponseWriter, *http.Request, int, string) {
	return func(w http.ResponseWriter, r *http.Request, hook int, uid string) {
		w.Header().Set("Content-Type", "application/json")
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, strings.ReplaceAll(good, "UID", uid))
	}
}

// raw writes a text to the connection, and ends it.
func raw(parts ...string) func(http.ResponseWriter, *http.Request, int, string) {
	return func(w http.ResponseWriter, r *http.Request, _ int, uid string) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		for _, p := range parts {
			if p == "WAIT" {
				_, _ = conn.Read(make([]byte, 1)) // until the client ends it
				continue
			}
			_, _ = io.WriteString(conn, strings.ReplaceAll(p, "UID", uid))
		}
	}
}

// closing ends whole answers of raw, which closes the connection: a client that is not told may send
// its next request on it first.
const closing = "Connection: close\r\n"

func sized(head string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n", head, len(good)-len("UID")+36)
}

func hangs(w http.ResponseWriter, r *http.Request, _ int, _ string) {
	<-r.Context().Done()
	panic(http.ErrAbortHandler)
}

// each answers each webhook in its own way.
func each(all ...func(http.ResponseWriter, *http.Request, int, string)) func(http.ResponseWriter, *http.Request, int, string) {
	return func(w http.ResponseWriter, r *http.Request, hook int, uid string) { all[hook](w, r, hook, uid) }
}

func within(d time.Duration) func(context.Context) (context.Context, context.CancelFunc) {
	return func(ctx context.Context) (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, d) }
}

// gone is a context that ends before the write.
func gone(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx, cancel
}

const (
	ignore = `"failurePolicy":"Ignore"`
	second = `"timeoutSeconds":1`
)

func dry(a *admission.Attributes) { a.DryRun = true }

func update(a *admission.Attributes) {
	a.Operation = admission.Update
	a.Old = tree.Object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a", "namespace": "default"}}
}

func deletes(a *admission.Attributes) { update(a); a.Operation, a.Object = admission.Delete, nil }

var judgedCases = []judged{
	{name: "allowed", serve: says(good)},
	{name: "spaces", serve: says(" {\n\t\"kind\" : \"AdmissionReview\" , \"apiVersion\":\"admission.k8s.io/v1\",\r\n\"response\":{\"allowed\": true ,\"uid\":\"UID\"} } \n")},
	{name: "allowed, with a status", serve: responds(`"allowed":true,"status":{"metadata":{},"code":200}`)},
	{name: "allowed, with a text", serve: responds(`"allowed":true,"status":{"status":"Success","message":"fine","reason":"x"}`)},
	{name: "allowed, with a wrong status", serve: responds(`"allowed":true,"status":"fine"`)},
	{name: "allowed, with a wrong code", serve: responds(`"allowed":true,"status":{"code":"200"}`)},
	{name: "allowed, with a large code", serve: responds(`"allowed":true,"status":{"code":9999999999}`)},
	{name: "allowed, with a code in another form", serve: responds(`"allowed":true,"status":{"code":0200}`)},
	{name: "not JSON behind it", serve: says(good + "x")},
	{name: "not JSON at its end", serve: says(strings.TrimSuffix(good, "}"))},
	{name: "a comma too many", serve: responds(`"allowed":true,`)},
	{name: "allowed twice", serve: responds(`"allowed":false,"allowed":true`)},
	{name: "uid twice", serve: responds(`"allowed":true,"uid":"x"`)},
	{name: "escapes", serve: says(strings.Replace(good, "AdmissionReview", `Admission\u0052eview`, 1))},
	{name: "not UTF-8", serve: responds("\"allowed\":true,\"status\":{\"message\":\"\xff\"}")},
	{name: "another case", serve: says(strings.Replace(good, "allowed", "Allowed", 1))},
	{name: "unknown members", serve: responds(`"allowed":true,"more":{"a":[1]}`)},
	{name: "the request", serve: says(strings.Replace(good, `"response"`, `"request":{"uid":"UID"},"response"`, 1))},
	{name: "no UID", serve: says(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"allowed":true}}`)},
	{name: "another UID", serve: says(strings.Replace(good, "UID", "x", 1))},
	{name: "another kind", serve: says(strings.Replace(good, "AdmissionReview", "Pod", 1))},
	{name: "no kind", serve: says(`{"response":{"uid":"UID","allowed":true}}`)},
	{name: "another version", serve: says(strings.Replace(good, "k8s.io/v1", "k8s.io/v1beta1", 1))},
	{name: "an unknown version", serve: says(strings.Replace(good, "k8s.io/v1", "k8s.io/v7", 1))},
	{name: "no response", serve: says(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}`)},
	{name: "null", serve: says(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":null}`)},
	{name: "empty", serve: says("")},
	{name: "an empty object", serve: says("{}")},
	{name: "nonsense", serve: says("nonsense")},
	{name: "YAML", serve: says("kind: AdmissionReview\napiVersion: admission.k8s.io/v1\nresponse: {uid: UID, allowed: true}\n")},
	{name: "a Status", serve: says(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","code":403}`)},
	{name: "not allowed", serve: responds(`"allowed":false`)},
	{name: "not said", serve: responds(`"status":{"message":"?"}`)},
	{name: "denied", serve: responds(`"allowed":false,"status":{"message":"not today"}`)},
	{name: "denied with a code", serve: responds(`"allowed":false,"status":{"code":403,"message":"not \"today\"","reason":"Forbidden"}`)},
	{name: "denied with a reason", serve: responds(`"allowed":false,"status":{"reason":"Because"}`)},
	{name: "denied with success", serve: responds(`"allowed":false,"status":{"status":"Success","code":200}`)},
	{name: "denied with details", serve: responds(`"allowed":false,"status":{"code":422,"details":{"name":"a","causes":[{"field":"x"}]}}`)},
	{name: "warnings", serve: responds(`"allowed":true,"warnings":["mind","the gap"]`)},
	{name: "warnings and denied", serve: responds(`"allowed":false,"warnings":["mind"]`)},
	{name: "audit annotations", serve: responds(`"allowed":true,"auditAnnotations":{"a":"b","c/d":"e","":"f"}`)},
	{name: "patch", serve: patches(`[{"op":"add","path":"/data/k","value":"v"}]`)},
	{name: "patch of an update", write: update, serve: patches(`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`)},
	{name: "patch of a deletion", write: deletes, serve: patches(`[{"op":"add","path":"/data/k","value":"v"}]`)},
	{name: "a patch that changes nothing", serve: patches(`[{"op":"replace","path":"/metadata/name","value":"a"}]`)},
	{name: "an empty patch", serve: patches(`[]`)},
	{name: "a patch that is none", serve: patches(`{"op":"add"}`)},
	{name: "a patch that does not apply", serve: patches(`[{"op":"remove","path":"/x/y"}]`)},
	{name: "a patch that tests", serve: patches(`[{"op":"test","path":"/metadata/name","value":"b"}]`)},
	{name: "a patch to another kind", serve: patches(`[{"op":"remove","path":"/kind"}]`)},
	{name: "patch without its type", serve: responds(`"allowed":true,"patch":"W10="`)},
	{name: "type without a patch", serve: responds(`"allowed":true,"patchType":"JSONPatch"`)},
	{name: "an empty type", serve: responds(`"allowed":true,"patch":"W10=","patchType":""`)},
	{name: "an empty patch and no type", serve: responds(`"allowed":true,"patch":""`)},
	{name: "another type", serve: responds(`"allowed":true,"patch":"W3sib3AiOiJhZGQiLCJwYXRoIjoiL2EiLCJ2YWx1ZSI6MX1d","patchType":"MergePatch"`)},
	{name: "not base64", serve: responds(`"allowed":true,"patch":"!","patchType":"JSONPatch"`)},
	{name: "a long patch", serve: patches(`[{"op":"add","path":"/data/k","value":"` + strings.Repeat("v", 100_000) + `"}]`)},
	{name: "a patch in pieces", serve: func(w http.ResponseWriter, r *http.Request, hook int, uid string) {
		w.(http.Flusher).Flush()
		patches(`[{"op":"add","path":"/data/k","value":"v"}]`)(w, r, hook, uid)
	}},
	{name: "too much", serve: func(w http.ResponseWriter, _ *http.Request, _ int, _ string) { _, _ = w.Write(make([]byte, 9<<20)) }},
	{name: "500", serve: headed(500)},
	{name: "404", serve: headed(404, "Content-Type", "text/plain")},
	{name: "201", serve: headed(201)},
	{name: "204", serve: func(w http.ResponseWriter, _ *http.Request, _ int, _ string) { w.WriteHeader(204) }},
	{name: "307", serve: headed(307, "Location", "/elsewhere")},
	{name: "503, again at once", serve: headed(503, "Retry-After", "0")},
	{name: "429", serve: headed(429)},
	{name: "503 with a Status", serve: func(w http.ResponseWriter, _ *http.Request, _ int, _ string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(503)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"later","reason":"ServiceUnavailable","code":503}`)
	}},
	{name: "another type of content", serve: headed(200, "Content-Type", "application/x-protobuf")},
	{name: "text", serve: headed(200, "Content-Type", "text/plain; charset=utf-8")},
	{name: "no type of content", serve: headed(200, "Content-Type", "")},
	{name: "a broken type of content", serve: headed(200, "Content-Type", "a/b/c;;")},
	{name: "more headers", serve: headed(200, "X-More", "1", "Warning", `299 - "mind"`, "Trailer", "X")},
	{name: "connection: close", serve: headed(200, "Connection", "close")},
	{name: "compressed", serve: func(w http.ResponseWriter, _ *http.Request, _ int, uid string) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = io.WriteString(z, strings.ReplaceAll(good, "UID", uid))
		_ = z.Close()
	}},
	{name: "HTTP/1.0", serve: raw("HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + good)},
	{name: "until the end", serve: raw("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + good)},
	{name: "interim", serve: raw("HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n" + sized(closing) + good)},
	{name: "by letters", serve: raw(strings.Split(sized("date: now\r\n"+closing)+good, "")...)},
	{name: "two lengths", serve: raw("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd")},
	{name: "a negative length", serve: raw("HTTP/1.1 200 OK\r\nContent-Length: -3\r\n\r\nabcd")},
	{name: "a broken head", serve: raw("HTTP/1.1 200 OK\r\nnonsense\r\n\r\n")},
	{name: "no head", serve: raw("nonsense\r\n\r\n")},
	{name: "half a head", serve: raw("HTTP/1.1 200 OK\r\nContent-")},
	{name: "half an answer", serve: raw(sized("") + good[:20])},
	{name: "nothing", serve: raw()},
	{name: "a long head", serve: raw("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 100_000) + "\r\nContent-Length: 2\r\n\r\n{}")},
	{name: "an endless head", serve: raw("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 11<<20))},
	{name: "more than an answer", serve: raw(sized("")+good+"HTTP/1.1 200 OK\r\n", "WAIT")},
	{name: "never", hooks: []string{second}, serve: hangs},
	{name: "half a head, then never", hooks: []string{second}, serve: raw("HTTP/1.1 200 OK\r\n", "WAIT")},
	{name: "half an answer, then never", hooks: []string{second}, serve: raw(sized("")+good[:20], "WAIT")},
	{name: "half a piece, then never", hooks: []string{second}, serve: raw("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n99\r\n{", "WAIT")},
	{name: "the request is over first", serve: hangs, ctx: within(2 * time.Second)},
	{name: "the client goes", serve: hangs, goes: time.Nanosecond},
	{name: "the client goes, ignored", hooks: []string{ignore}, serve: hangs, goes: time.Nanosecond},
	{name: "the client goes within the answer", serve: raw(sized("")+good[:20], "WAIT"), goes: time.Second},
	{name: "the client is gone", serve: says(good), ctx: gone},
	{name: "500, ignored", hooks: []string{ignore}, serve: headed(500)},
	{name: "nonsense, ignored", hooks: []string{ignore}, serve: says("nonsense")},
	{name: "never, ignored", hooks: []string{ignore + "," + second}, serve: hangs},
	{name: "denied, not ignored", hooks: []string{ignore}, serve: responds(`"allowed":false`)},
	{name: "a patch that does not apply, not ignored", hooks: []string{ignore}, serve: patches(`[{"op":"remove","path":"/x/y"}]`)},
	{name: "connection refused", hooks: []string{`"clientConfig":{"url":"https://127.0.0.1:1/"}`}},
	{name: "connection refused, ignored", hooks: []string{`"clientConfig":{"url":"https://127.0.0.1:1/"},` + ignore}},
	{name: "no such Service", hooks: []string{`"clientConfig":{"service":{"namespace":"default","name":"none"}}`}},
	{name: "unknown authority", hooks: []string{`"clientConfig":{"url":"SERVER"}`}},
	{name: "no address", hooks: []string{`"clientConfig":{}`}},
	{name: "Service", hooks: []string{`"clientConfig":{"service":{"namespace":"default","name":"example","path":"/0"},"caBundle":"CA"}`}, serve: says(good)},
	{name: "v1beta1", hooks: []string{`"admissionReviewVersions":["v1beta1","v1"]`}, serve: says(strings.Replace(good, "k8s.io/v1", "k8s.io/v1beta1", 1))},
	{name: "v1beta1 without a UID", hooks: []string{`"admissionReviewVersions":["v1beta1"]`}, serve: says(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1beta1","response":{"allowed":true}}`)},
	{name: "v1beta1 with a patch", hooks: []string{`"admissionReviewVersions":["v1beta1"]`},
		serve: says(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1beta1","response":{"uid":"UID","allowed":true,"patch":"W3sib3AiOiJhZGQiLCJwYXRoIjoiL2EiLCJ2YWx1ZSI6MX1d"}}`)},
	{name: "v1beta1 answered by v1", hooks: []string{`"admissionReviewVersions":["v1beta1"]`}, serve: says(good)},
	{name: "no known version", hooks: []string{`"admissionReviewVersions":["v7"]`}, serve: says(good)},
	{name: "dry run", serve: says(good), write: dry},
	{name: "dry run with effects", hooks: []string{`"sideEffects":"Some"`}, serve: says(good), write: dry},
	{name: "dry run with unknown effects", hooks: []string{`"sideEffects":null`}, serve: says(good), write: dry},
	{name: "dry run with unknown effects, ignored", hooks: []string{`"sideEffects":null,` + ignore}, serve: says(good), write: dry},
	{name: "update", serve: says(good), write: update},
	{name: "delete", serve: says(good), write: deletes},
	{name: "a user with everything", serve: says(good), write: func(a *admission.Attributes) {
		a.User = &auth.User{Name: "<&>\"\\\u2028ü\x01", UID: "u", Groups: []string{"a", "b"}, Extra: map[string][]string{"x/y": {"1", "2"}, "z": nil}}
	}},
	{name: "a user with nothing", serve: says(good), write: func(a *admission.Attributes) { a.User = &auth.User{} }},
	{name: "a subresource", hooks: []string{`"rules":[{"apiGroups":["*"],"apiVersions":["*"],"operations":["*"],"resources":["*/*"]}]`}, serve: says(good), write: func(a *admission.Attributes) { a.Subresource = "status" }},
	{name: "an object with everything", serve: says(good), write: func(a *admission.Attributes) {
		a.Object = tree.Object{"kind": "ConfigMap", "apiVersion": "v1", "metadata": map[string]any{"name": "ü<>&\u2028\x00", "labels": map[string]any{}},
			"l": []any{nil, true, int64(-7), 1.5, 1e300, map[string]any{"x": []any{}}}}
	}},
	{name: "another version", hooks: []string{`"matchPolicy":"Equivalent","rules":[{"apiGroups":["autoscaling"],"apiVersions":["v2"],"operations":["*"],"resources":["horizontalpodautoscalers"]}]`},
		serve: says(good), write: func(a *admission.Attributes) {
			a.Kind.Group, a.Kind.Kind = "autoscaling", "HorizontalPodAutoscaler"
			a.Resource.Group, a.Resource.Resource = "autoscaling", "horizontalpodautoscalers"
			a.Object = tree.Object{"kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v1", "metadata": map[string]any{"name": "a", "namespace": "default"},
				"spec": map[string]any{"maxReplicas": int64(3), "scaleTargetRef": map[string]any{"kind": "x", "name": "y"}, "targetCPUUtilizationPercentage": int64(5)}}
		}},
	{name: "condition does not match", hooks: []string{`"matchConditions":[{"name":"c","expression":"object.metadata.name == 'b'"}]`}, serve: says(good)},
	{name: "condition fails", hooks: []string{`"matchConditions":[{"name":"c","expression":"object.nothing == 'b'"}]`}, serve: says(good)},
	{name: "condition fails, ignored", hooks: []string{ignore + `,"matchConditions":[{"name":"c","expression":"object.nothing == 'b'"}]`}, serve: says(good)},
	{name: "other objects", hooks: []string{`"objectSelector":{"matchLabels":{"a":"b"}}`, ""}, serve: says(good)},
	{name: "three", hooks: []string{"", "", ""}, serve: says(good)},
	{name: "the second refuses", hooks: []string{"", "", ""}, serve: each(says(good), responds(`"allowed":false`), says(good))},
	{name: "the second refuses at once", hooks: []string{second, ""}, serve: each(hangs, responds(`"allowed":false`)), only: "Validating"},
	{name: "the first hangs, ignored", hooks: []string{second + "," + ignore, "", ignore}, serve: each(hangs, says(good), headed(500))},
	{name: "two time out", hooks: []string{second + "," + ignore, second + "," + ignore}, serve: hangs, only: "Validating"},
	{name: "patches one after the other", hooks: []string{"", "", ""}, serve: each(patches(`[{"op":"add","path":"/data/a","value":"1"}]`), says(good), patches(`[{"op":"add","path":"/data/b","value":"2"}]`)), only: "Mutating"},
	{name: "again", hooks: []string{`"reinvocationPolicy":"IfNeeded"`, "", `"reinvocationPolicy":"IfNeeded"`}, again: func(*admission.Attributes) {},
		serve: each(says(good), patches(`[{"op":"add","path":"/data/a","value":"1"}]`), says(good)), only: "Mutating"},
	{name: "again, changed by another plugin", hooks: []string{`"reinvocationPolicy":"IfNeeded"`, ""}, again: func(a *admission.Attributes) {
		a.Meta()["labels"] = map[string]any{"x": "y"}
	}, serve: says(good), only: "Mutating"},
	{name: "again, not changed", hooks: []string{`"reinvocationPolicy":"IfNeeded"`, ""}, again: func(*admission.Attributes) {}, serve: says(good), only: "Mutating"},
	{name: "again, a deletion", hooks: []string{`"reinvocationPolicy":"IfNeeded"`}, write: deletes, again: func(*admission.Attributes) {}, serve: says(good), only: "Mutating"},
	{name: "again, refused", hooks: []string{`"reinvocationPolicy":"IfNeeded"`, ""}, again: func(a *admission.Attributes) { a.Object["data"] = map[string]any{"z": "z"} },
		serve: each(patches(`[{"op":"remove","path":"/data/first"}]`), says(good)), only: "Mutating"},
}

// told is what clients and the audit log are told.
type told struct {
	mu   sync.Mutex
	said []string
}

func (t *told) Warn(texts []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.said = append(t.said, fmt.Sprintf("warning %q", texts))
}

func (t *told) Annotate(key, value string, from auditinternal.Level) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.said = append(t.said, fmt.Sprintf("annotation %s=%s from %s", key, value, from))
}

// pipes is a network without sockets, so that what waits on it waits in virtual time.
type pipes struct {
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// Dial connects with the one server there is.
func (p *pipes) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.accept <- theirs:
		return ours, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept implements net.Listener, as Close and Addr do.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accept:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Addr is one that the certificate of httptest is for.
func (*pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// judge is a server of webhooks, and the plugins that are compared.
type judge struct {
	t     *testing.T
	store *memstore.Store
	known *upstreams.Kinds
	sides map[string]func(ctx context.Context, a *admission.Attributes) error
	http  *httptest.Server

	mu    sync.Mutex
	serve func(w http.ResponseWriter, r *http.Request, hook int, uid string)
	asked []string
	// onAsked is called when a webhook is asked, if it is set.
	onAsked func()
}

// quiet keeps what upstream logs from the test's output.
func quiet(t *testing.T) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	t.Cleanup(klog.ClearLogger)
	// One of upstream's handlers of errors waits between two of them, on a clock that is kept
	// for all: it cannot be both the real one and that of a bubble.
	handlers := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = nil
	t.Cleanup(func() { utilruntime.ErrorHandlers = handlers })
}

// newJudge returns a judge; virtual means one whose network has no sockets.
func newJudge(t *testing.T, virtual bool) *judge {
	registry, err := kinds.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	j := &judge{t: t, store: memstore.New(), known: upstreams.NewKinds(func() *kinds.Registry { return registry }, func(obj tree.Object, from, to *kinds.Resource) (tree.Object, error) {
		return kinds.Convert(obj, from, to)
	})}
	t.Cleanup(func() { must.Close(t, j.store) })
	j.http = httptest.NewUnstartedServer(j)
	j.http.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	var dial func(ctx context.Context, network, address string) (net.Conn, error)
	if virtual {
		p := &pipes{accept: make(chan net.Conn), closed: make(chan struct{})}
		if err := j.http.Listener.Close(); err != nil {
			t.Fatal(err)
		}
		j.http.Listener, dial = p, p.Dial
	}
	j.http.StartTLS()
	t.Cleanup(j.http.Close)
	j.put("namespaces", "default", `{"metadata":{"name":"default"}}`)
	s := state.New(j.store)
	cfg := Config{
		State: s, Kinds: j.known, Namespaces: upstreams.NewNamespaces(s, func(context.Context) error { return nil }),
		Suspended: func(string, string) bool { return false }, Suspensions: func() int { return 0 },
		Resolve: func(_ context.Context, _, name string, _ int32) (string, error) {
			if name == "example" {
				return j.http.Listener.Addr().String(), nil
			}
			return "", errors.New("there is no Service of this name")
		},
		DialURL: dial, Authorizer: auth.Default(), Log: slog.New(slog.DiscardHandler),
	}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	mutates, err := mutating.NewMutatingWebhook(nil)
	must(err)
	validates, err := validating.NewValidatingAdmissionWebhook(nil)
	must(err)
	theirM, err := newMutating(cfg, mutates.Webhook, "")
	must(err)
	theirV, err := newValidating(cfg, validates.Webhook, "")
	must(err)
	ourM, err := NewMutating(cfg, nil)
	must(err)
	ourV, err := NewValidating(cfg, nil)
	must(err)
	j.sides = map[string]func(context.Context, *admission.Attributes) error{}
	for name, p := range map[string]*Mutating{"upstream": theirM, "ours": ourM} {
		j.sides[name+" Mutating"] = func(ctx context.Context, a *admission.Attributes) error {
			if !p.Handles(a) {
				return errors.New("not asked")
			}
			return p.Admit(ctx, a)
		}
	}
	for name, p := range map[string]*Validating{"upstream": theirV, "ours": ourV} {
		j.sides[name+" Validating"] = func(ctx context.Context, a *admission.Attributes) error {
			if !p.Handles(a) {
				return errors.New("not asked")
			}
			return p.Validate(ctx, a)
		}
	}
	return j
}

func (j *judge) put(table, key, value string) {
	w := &proto.Write{Table: table, Key: key, Op: proto.Op_OP_PUT, Value: []byte(value)}
	if _, err := j.store.Propose(j.t.Context(), w); err != nil {
		j.t.Fatal(err)
	}
}

var uids = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// ServeHTTP implements http.Handler. It notes what it was asked.
func (j *judge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var review map[string]any
	if err := json.Unmarshal(body, &review); err != nil {
		j.t.Errorf("a review: %v", err)
		return
	}
	uid := review["request"].(map[string]any)["uid"].(string)
	same, err := json.Marshal(review)
	if err != nil {
		j.t.Error(err)
	}
	if !uids.MatchString(uid) {
		j.t.Errorf("the UID of a review is %q", uid)
	}
	var hook int
	if _, err := fmt.Sscanf(r.URL.Path, "/%d", &hook); err != nil {
		j.t.Errorf("path %q", r.URL.Path)
	}
	j.mu.Lock()
	serve, onAsked := j.serve, j.onAsked
	j.asked = append(j.asked, fmt.Sprintf("%s %s %s %q %q %q %d %s", r.Method, r.Host, r.URL, r.Header["Content-Type"], r.Header["Accept"], r.Header["User-Agent"], hook, uids.ReplaceAllString(string(same), "UID")))
	j.mu.Unlock()
	if onAsked != nil {
		onAsked()
	}
	serve(w, r, hook, uid)
}

// configure stores the webhooks of a case.
func (j *judge) configure(c *judged, kind string) {
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: j.http.Certificate().Raw}))
	var hooks []string
	all := c.hooks
	if all == nil {
		all = []string{""}
	}
	for i, h := range all {
		w := map[string]any{
			"name": fmt.Sprintf("w%d.example.com", i), "sideEffects": "None", "admissionReviewVersions": []any{"v1"}, "failurePolicy": "Fail", "matchPolicy": "Exact", "timeoutSeconds": 10,
			"namespaceSelector": map[string]any{}, "objectSelector": map[string]any{}, "clientConfig": map[string]any{"url": fmt.Sprintf("%s/%d", j.http.URL, i), "caBundle": ca},
			"rules": []any{map[string]any{"apiGroups": []any{"*"}, "apiVersions": []any{"*"}, "operations": []any{"*"}, "resources": []any{"*"}}},
		}
		var more map[string]any
		if err := json.Unmarshal([]byte("{"+strings.NewReplacer("SERVER", j.http.URL, `"CA"`, `"`+ca+`"`).Replace(h)+"}"), &more); err != nil {
			j.t.Fatal(err)
		}
		maps.Copy(w, more)
		if kind == "Validating" {
			delete(w, "reinvocationPolicy")
		}
		raw, err := json.Marshal(w)
		if err != nil {
			j.t.Fatal(err)
		}
		hooks = append(hooks, string(raw))
	}
	j.put(strings.ToLower(kind)+"webhookconfigurations.admissionregistration.k8s.io", "c", `{"metadata":{"name":"c"},"webhooks":[`+strings.Join(hooks, ",")+`]}`)
}

// counts are the metrics of admission webhooks: counters, and how often histograms were observed.
func (j *judge) counts() map[string]float64 {
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		j.t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "apiserver_admission_") {
			continue
		}
		for _, m := range f.Metric {
			key := f.GetName()
			for _, l := range m.Label {
				key += " " + l.GetName() + "=" + l.GetValue()
			}
			out[key] = m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount()) + float64(m.GetSummary().GetSampleCount())
		}
	}
	return out
}

// run is what comes of a case on one side.
func (j *judge) run(c *judged, side string) string {
	j.mu.Lock()
	j.asked, j.onAsked = nil, nil
	j.mu.Unlock()
	before := map[string]float64{}
	if !c.warms {
		before = j.counts()
	}
	a := &admission.Attributes{
		Operation: admission.Create, Namespace: "default", Name: "a", User: &auth.User{Name: "admin", Groups: []string{"system:masters"}}, Interfaces: j.known, FieldManager: "me",
		Object: tree.Object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a", "namespace": "default"}, "data": map[string]any{"first": "1"}},
	}
	a.Kind.Version, a.Kind.Kind, a.Resource.Version, a.Resource.Resource = "v1", "ConfigMap", "v1", "configmaps"
	if c.write != nil {
		c.write(a)
	}
	heard := &told{}
	a.Told = heard
	ctx, cancel := j.t.Context(), context.CancelFunc(func() {})
	if c.ctx != nil {
		ctx, cancel = c.ctx(ctx)
	}
	defer cancel()
	if c.goes != 0 {
		ctx, cancel = context.WithCancel(ctx)
		j.mu.Lock()
		j.onAsked = func() { time.AfterFunc(c.goes, cancel) }
		j.mu.Unlock()
	}
	began := time.Now()
	err := j.sides[side](ctx, a)
	if c.again != nil && err == nil {
		heard.said = append(heard.said, fmt.Sprint("again: ", a.GetReinvocationContext().ShouldReinvoke()))
		c.again(a)
		a.GetReinvocationContext().SetIsReinvoke()
		err = j.sides[side](ctx, a)
	}
	took := time.Since(began)
	var out strings.Builder
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		raw, _ := json.Marshal(status.Status())
		fmt.Fprintf(&out, "status %s\n", raw)
	}
	fmt.Fprintf(&out, "error %v\n", err)
	object, encoding := json.Marshal(a.Object)
	if encoding != nil {
		object = []byte(encoding.Error())
	}
	slices.Sort(heard.said)
	j.mu.Lock()
	slices.Sort(j.asked)
	fmt.Fprintf(&out, "object %s\nreplaced %t\ntold %s\nasked %s\n", object, a.Replaced(), strings.Join(heard.said, "\n     "), strings.Join(j.asked, "\n      "))
	j.mu.Unlock()
	after := before
	if !c.warms {
		after = j.counts()
	}
	for _, key := range slices.Sorted(maps.Keys(after)) {
		if n := after[key] - before[key]; n != 0 {
			fmt.Fprintf(&out, "%s %v\n", key, n)
		}
	}
	if c.waits() { // in virtual time, so it is the same to the nanosecond
		fmt.Fprintf(&out, "took %s\n", took)
	}
	return uids.ReplaceAllString(out.String(), "UID")
}

// TestJudge: what comes of a write is what upstream's dispatchers make of it, in the words of
// errors, annotations, warnings, metrics, the object, and what the webhooks were asked; on a
// connection that upstream's client has made, and on those of our own.
func TestJudge(t *testing.T) {
	quiet(t)
	real := newJudge(t, false)
	for i := range judgedCases {
		c := &judgedCases[i]
		for _, kind := range []string{"Mutating", "Validating"} {
			if c.only != "" && c.only != kind {
				continue
			}
			t.Run(c.name+"/"+kind, func(t *testing.T) {
				if !c.waits() {
					real.compare(t, c, kind)
					return
				}
				synctest.Test(t, func(t *testing.T) { newJudge(t, true).compare(t, c, kind) })
			})
		}
	}
}

// compare runs a case on upstream's side and then twice on ours.
func (j *judge) compare(t *testing.T, c *judged, kind string) {
	// With a webhook that answers well, the next call is one of our own.
	warm := *c
	warm.serve, warm.write, warm.ctx, warm.again, warm.goes, warm.warms = says(good), nil, nil, nil, 0, true
	if strings.Contains(strings.Join(c.hooks, ""), "v1beta1") {
		warm.serve = says(strings.Replace(good, "k8s.io/v1", "k8s.io/v1beta1", 1))
	}
	j.configure(c, kind)
	j.set(warm.serve)
	j.run(&warm, "ours "+kind)
	j.run(&warm, "ours "+kind)
	j.set(c.serve)
	want := j.run(c, "upstream "+kind)
	for _, round := range []string{"first", "second"} {
		if got := j.run(c, "ours "+kind); got != want {
			t.Errorf("the %s time:\n%s\nwant\n%s", round, got, want)
		}
	}
}

func (j *judge) set(serve func(w http.ResponseWriter, r *http.Request, hook int, uid string)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.serve = serve
}

// TestOtherAuthority: connections that were made while one authority was trusted are not those of
// a configuration that trusts another one.
func TestOtherAuthority(t *testing.T) {
	quiet(t)
	j := newJudge(t, false)
	j.set(says(good))
	trusts, other := &judged{}, &judged{hooks: []string{`"clientConfig":{"url":"SERVER/0"}`}}
	for _, kind := range []string{"Mutating", "Validating"} {
		for range 2 {
			j.configure(trusts, kind)
			for range 3 {
				if got := j.run(trusts, "ours "+kind); !strings.Contains(got, "error <nil>") {
					t.Errorf("%s: %s", kind, got)
				}
			}
			j.configure(other, kind)
			if got := j.run(other, "ours "+kind); !strings.Contains(got, "certificate signed by unknown authority") || !strings.Contains(got, "asked \n") {
				t.Errorf("%s, of another authority: %s", kind, got)
			}
		}
	}
}
