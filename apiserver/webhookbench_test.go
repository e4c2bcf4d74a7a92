package apiserver_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/quorate/quorate/internal/cputime"
)

// BenchmarkWebhooks is a create that one mutating and two validating webhooks are asked about, as
// `quorate bench load --rows create-webhooks` has it. What their server needs is in it.
func BenchmarkWebhooks(b *testing.B) {
	e := newHookedEnv(b)
	hook := &admissionHook{http: httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review struct{ Request struct{ UID string } }
		raw, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(raw, &review)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":true}}`, review.Request.UID)
	}))}
	hook.http.EnableHTTP2 = true
	hook.http.StartTLS()
	b.Cleanup(hook.http.Close)
	hook.configure(e, "Mutating", "m", rule("", "v1", "configmaps"))
	hook.configure(e, "Validating", "v", rule("", "v1", "configmaps"))
	hook.configure(e, "Validating", "w", rule("", "v1", "configmaps"))
	serve(b, e, 201, http.MethodPost, maps, "application/json", object(-1))
	cputime.PerOp(b)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		serve(b, e, 201, http.MethodPost, maps, "application/json", object(i))
	}
}
