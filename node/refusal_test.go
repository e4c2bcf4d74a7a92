package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/quorate/quorate/membership"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestRefusal: a node whose state is wrong answers every request with a Status that
// says so, but those that ask how it is.
func TestRefusal(t *testing.T) {
	var r refusal
	h := r.before(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	paths := map[string]int{
		"/api/v1/pods": 503, "/apis": 503, "/version": 503, "/openapi/v3": 503, "/": 503,
		"/quorate/v1/snapshot": 503, "/quorate/v1/members": 503, "/quorate/join": 503, "/debug/pprof/heap": 503,
		"/livez": 418, "/readyz": 418, "/readyz/state": 418, "/healthz": 418, "/metrics": 418, "/quorate/v1/status": 418,
	}
	for _, broken := range []bool{false, true} {
		if broken {
			r.refuse(errors.New("at log index 16 ..."))
			r.refuse(errors.New("again"))
		}
		for path, want := range paths {
			if !broken {
				want = http.StatusTeapot
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
			if w.Code != want {
				t.Errorf("broken %v: %s: %d, want %d", broken, path, w.Code, want)
			}
			var st metav1.Status
			if want == 503 && (json.Unmarshal(w.Body.Bytes(), &st) != nil || st.Reason != metav1.StatusReasonServiceUnavailable || w.Header().Get("Retry-After") == "") {
				t.Errorf("%s: %s %v", path, w.Body, w.Header())
			}
		}
	}
	if err := r.reason(); err == nil || err.Error() != "at log index 16 ..." {
		t.Errorf("the reason is %v", err)
	}
}

// TestRefusalOfRemoved: who asks a removed node is told that, and not that its state is
// wrong.
func TestRefusalOfRemoved(t *testing.T) {
	var r refusal
	r.refuse(fmt.Errorf("said by n1: %w", membership.ErrRemoved))
	w := httptest.NewRecorder()
	r.before(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/v1/secrets?resourceVersion=0", nil))
	var st metav1.Status
	if err := json.Unmarshal(w.Body.Bytes(), &st); err != nil || w.Code != 503 || !strings.Contains(st.Message, "was removed from the cluster") {
		t.Errorf("%d %s %v", w.Code, w.Body, err)
	}
}
