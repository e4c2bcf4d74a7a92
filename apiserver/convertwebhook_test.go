package apiserver_test

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// convertHook is a conversion webhook between v1beta1, where spec.hostPort is "h:p",
// and v1, where spec.host and spec.port are apart. It lies if it is told to.
type convertHook struct {
	http  *httptest.Server
	mode  atomic.Value // string
	calls atomic.Int64
	// objects of all calls.
	objects atomic.Int64
	mu      sync.Mutex
	held    chan struct{} // closed to let calls of mode hang go
}

// convertModes are the ways in which a convertHook answers: "right", then what ServeHTTP
// and lie do otherwise.
var convertModes = strings.Fields("right " +
	"hang 500 404 nonsense uid count none refused mute huge v1 empty " +
	"name namespace objectuid version kind nometa meta badlabel numberlabel list unknownfield")

func newConvertHook(t testing.TB) *convertHook {
	h := &convertHook{held: make(chan struct{})}
	h.set("right")
	h.http = httptest.NewTLSServer(h)
	t.Cleanup(func() {
		h.release()
		h.http.Close()
	})
	return h
}

func (h *convertHook) set(mode string) { h.mode.Store(mode) }

// release lets calls go that hang, now and later.
func (h *convertHook) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.held:
	default:
		close(h.held)
	}
}

// ca is the webhook's certificate as caBundle wants it.
func (h *convertHook) ca() string {
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.http.Certificate().Raw}))
}

func (h *convertHook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review struct {
		APIVersion string `json:"apiVersion"`
		Request    struct {
			UID     string           `json:"uid"`
			Desired string           `json:"desiredAPIVersion"`
			Objects []map[string]any `json:"objects"`
		} `json:"request"`
	}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	h.calls.Add(1)
	h.objects.Add(int64(len(review.Request.Objects)))
	mode := h.mode.Load().(string)
	response := map[string]any{"uid": review.Request.UID, "result": map[string]any{"status": "Success"}}
	var out []any
	for _, o := range review.Request.Objects {
		convertHost(o, review.Request.Desired)
		out = append(out, lie(mode, o))
	}
	switch mode {
	case "hang":
		select {
		case <-h.held:
		case <-r.Context().Done():
			// A handler that returns answers with an empty 200, which a client whose
			// time was up this moment may still take.
			panic(http.ErrAbortHandler)
		}
	case "500":
		http.Error(w, "no luck today", http.StatusInternalServerError)
		return
	case "404":
		http.NotFound(w, r)
		return
	case "nonsense":
		fmt.Fprint(w, "nonsense")
		return
	case "uid":
		response["uid"] = "another"
	case "count":
		out = append(out, out...)
	case "none":
		out = nil
	case "refused":
		response["result"] = map[string]any{"status": "Failure", "message": "cannot do that"}
	case "mute":
		response["result"] = map[string]any{"status": "Failure"}
	case "huge":
		response["note"] = strings.Repeat("x", 9<<20)
	case "v1":
		review.APIVersion = "apiextensions.k8s.io/v2"
	case "empty":
		response = nil
	}
	if response != nil {
		response["convertedObjects"] = out
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"kind": "ConversionReview", "apiVersion": review.APIVersion, "response": response})
}

// convertHost moves the host and port to where a version has them.
func convertHost(o map[string]any, desired string) {
	o["apiVersion"] = desired
	spec, _ := o["spec"].(map[string]any)
	if spec == nil {
		return
	}
	if strings.HasSuffix(desired, "/v1beta1") {
		if host, ok := spec["host"].(string); ok {
			spec["hostPort"] = fmt.Sprintf("%s:%s", host, spec["port"])
		}
		delete(spec, "host")
		delete(spec, "port")
		return
	}
	if both, ok := spec["hostPort"].(string); ok {
		spec["host"], spec["port"], _ = strings.Cut(both, ":")
	}
	delete(spec, "hostPort")
}

// lie changes what a webhook must not change.
func lie(mode string, o map[string]any) any {
	meta, _ := o["metadata"].(map[string]any)
	set := func(name string, v any) {
		if meta != nil {
			meta[name] = v
		}
	}
	switch mode {
	case "name":
		set("name", "another")
	case "namespace":
		set("namespace", "another")
	case "objectuid":
		set("uid", "another")
	case "version":
		o["apiVersion"] = "stable.example.com/v7"
	case "kind":
		o["kind"] = "Another"
	case "nometa":
		delete(o, "metadata")
	case "meta":
		set("finalizers", []any{"sneaky/one"})
		set("generation", 99)
		set("labels", map[string]any{"added": "by-webhook"})
		set("annotations", map[string]any{"note": "by-webhook"})
	case "badlabel":
		set("labels", map[string]any{"a b": "c"})
	case "numberlabel":
		set("labels", map[string]any{"a": 1})
	case "list":
		return []any{}
	case "unknownfield":
		o["spec"].(map[string]any)["surprise"] = true
	}
	return o
}
