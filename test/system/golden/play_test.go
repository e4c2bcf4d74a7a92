package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/quorate/quorate/internal/must"
)

// fake is a server that stories are told to. Its answers are the request, but for
//
//	/lag/N    is 201 at first, and 403 from the N-th time on
//	/hook/N   calls the webhook N of the story with a request, and answers as it does
//
// and it writes an audit event for each of them.
type fake struct {
	mu    sync.Mutex
	times int
	audit string
	hooks *webhooks
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.times++
	id := fmt.Sprintf("id-%d", f.times)
	w.Header().Set("Audit-Id", id)
	body, _ := io.ReadAll(r.Body)
	kind, rest, _ := strings.Cut(strings.Trim(r.URL.Path, "/"), "/")
	switch kind {
	case "lag":
		code := http.StatusCreated
		if fmt.Sprint(f.times) >= rest {
			code = http.StatusForbidden
		}
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"times":%d}`, f.times)
	case "hook":
		w.Header().Set("Warning", `299 - "called"`)
		answer := httptest.NewRecorder()
		f.hooks.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/"+rest, strings.NewReader(
			`{"request":{"uid":"u","operation":"CREATE","resource":{"group":"apps","version":"v1","resource":"things"},"subResource":"scale","name":"n","dryRun":true}}`)))
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
	default:
		_ = json.NewEncoder(w).Encode(map[string]any{
			"method": r.Method, "type": r.Header.Get("Content-Type"), "user": r.Header.Get("Impersonate-User"), "body": string(body),
		})
	}
	log, _ := os.OpenFile(f.audit, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	fmt.Fprintf(log, `{"auditID":%q,"annotations":{"authorization.k8s.io/decision":"allow","said":"it"}}`+"\n", id)
	log.Close()
}

// TestPlay tells stories to a server as if it was kube-apiserver, or Quorate. What comes of
// each request is "STATUS WARNINGS WEBHOOKS BODY".
func TestPlay(t *testing.T) {
	const hook = "@webhook h\nrecord: %s\nresponse: {allowed: true, patch: [{op: remove, path: /a}]}\n"
	for _, x := range []struct {
		name, text string
		upstream   bool
		want       string
	}{
		{"a body is YAML", "== a: A\n> POST /a\n{b: [c, 1]}\n", true,
			`200 [] [] {"body":"{\"b\":[\"c\",1]}","method":"POST","type":"application/json","user":"admin"}`},
		{"a patch has a type", "== a: A\n> PATCH /a\n> Impersonate-User: bob\n{b: c}\n", true,
			`200 [] [] {"body":"{\"b\":\"c\"}","method":"PATCH","type":"application/merge-patch+json","user":"bob"}`},
		{"other types are sent as they are", "== a: A\n> PUT /a\n> Content-Type: text/plain\n{b: c}\n", true,
			`200 [] [] {"body":"{b: c}","method":"PUT","type":"text/plain","user":"admin"}`},
		{"variables", "> POST /a\n{b: c}\n$m \"method\":\"(\\w+)\"\n== a: A\n> GET /a\n> Impersonate-User: ${m}\n", true,
			`200 [] [] {"body":"","method":"GET","type":"","user":"POST"}`},
		{"no such variable", "== a: A\n> GET /${x}\n", true, "s.txt:2: ${x}: there is no such variable"},
		{"a capture without a match", "== a: A\n> GET /a\n$x (nothing)\n", true, "s.txt:3: (nothing) does not match"},
		{"kube-apiserver is asked again", "== a: A\n>> POST /lag/3\n< 403\n", true, `403 [] [] {"times":3}`},
		{"Quorate is asked once", "== a: A\n>> POST /lag/3\n< 403\n", false, "s.txt:3: status 201, want 403\n{\"times\":1}"},
		{"what prepares must be as awaited", ">> POST /lag/3\n< 403\n== a: A\n> GET /a\n", false, "s.txt:2: status 201, want 403"},
		{"what prepares must succeed", "> POST /lag/1\n== a: A\n> GET /a\n", true, "s.txt:1: status 403, want 2xx"},
		{"controllers are kube-apiserver's", "@controller POST /lag/1\n== a: A\n> POST /lag/9\n", false, `201 [] [] {"times":1}`},
		{"until", "@until /a GET\n== a: A\n> POST /lag/9\n", false, `201 [] [] {"times":2}`},
		{"a webhook", fmt.Sprintf(hook, "false") + "== a: A\n> POST /hook/h\n", true,
			`200 [299 - "called"] [h: CREATE things.v1.apps/scale name=n dryRun] {"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"allowed":true,"patch":"W3sib3AiOiJyZW1vdmUiLCJwYXRoIjoiL2EifV0=","patchType":"JSONPatch","uid":"u"}}`},
		{"a broken webhook", "@webhook h\ncode: 500\nbody: broken\n== a: A\n> POST /hook/h\n", true,
			`500 [299 - "called"] [h: CREATE things.v1.apps/scale name=n dryRun] "broken"`},
		{"no such webhook", "== a: A\n> POST /hook/other\n", true, `404 [299 - "called"] [] "404 page not found\n"`},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			if got := played(t, x.text, x.upstream); !strings.HasPrefix(got, x.want) {
				t.Errorf("got\n%s\nwant\n%s", got, x.want)
			}
		})
	}
}

func played(t *testing.T, text string, upstream bool) string {
	t.Helper()
	s, err := parseStory("s.txt", text)
	must.OK(t, err)
	hooks, err := startWebhooks(s.webhooks)
	must.OK(t, err)
	defer hooks.close()
	f := &fake{hooks: hooks, audit: filepath.Join(t.TempDir(), "audit.log")}
	web := httptest.NewServer(f)
	defer web.Close()
	blocks, err := s.play(t.Context(), &server{url: web.URL, client: web.Client(), upstream: upstream, audit: &auditLog{path: f.audit}}, hooks)
	if err != nil {
		return err.Error()
	}
	b := blocks[0]
	if len(b.Audit) != 1 || b.Audit["said"] != "it" {
		t.Errorf("the annotations are %v", b.Audit)
	}
	return fmt.Sprintf("%d %v %v %s", b.Status, b.Warnings, b.Webhooks, jsonOf(b.Body))
}
