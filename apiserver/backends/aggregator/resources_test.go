package aggregator_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/internal/must"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
)

// TestEndlessEvent: an event of a watch that does not end costs what an answer may have, ends the watch, and is no event
// of an error, by which a reflector would begin anew.
func TestEndlessEvent(t *testing.T) {
	var sent atomic.Int64
	e := newEnv(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json;stream=watch")
		fmt.Fprint(w, `{"type":"ADDED","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"`)
		for piece := strings.Repeat("a", 64<<10); ; {
			n, err := io.WriteString(w, piece)
			if sent.Add(int64(n)); err != nil {
				return
			}
		}
	})
	e.put("widgets.example.com", true, nil)
	client, err := e.of.Metadata(&auth.User{Name: "u"})
	must.OK(t, err)
	widgets := apischema.GroupVersionResource{Group: "widgets.example.com", Version: "v1", Resource: "widgets"}
	w, err := client.Resource(widgets).Watch(t.Context(), metav1.ListOptions{})
	must.OK(t, err)
	for event := range w.ResultChan() {
		t.Errorf("an event: %s", event.Type)
	}
	if n := sent.Load(); n < 32<<20 || n > 64<<20 {
		t.Errorf("%d bytes were sent", n)
	}
}
