package apiserver_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/internal/slots"
	"github.com/quorate/quorate/proto"
)

// revoker is a plugin that waits until several deletions of a collection are decided at once, and
// an authorizer that refuses from then on.
type revoker struct {
	deciding atomic.Int64
	once     sync.Once
	revoke   func()
	refuses  atomic.Bool
}

func (r *revoker) Handles(a *admission.Attributes) bool {
	return a.Resource.Resource == "configmaps" && a.Operation == admission.Delete
}

func (r *revoker) Validate(ctx context.Context, _ *admission.Attributes) error {
	defer slots.Waiting(ctx)()
	r.deciding.Add(1)
	for end := time.Now().Add(10 * time.Second); r.deciding.Load() < 8 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	r.once.Do(r.revoke)
	return nil
}

func (r *revoker) Authorize(context.Context, auth.Attributes) (auth.Decision, string, error) {
	if r.refuses.Load() {
		return auth.NoOpinion, "not any more", nil
	}
	return auth.Allow, "", nil
}

// TestRevokedDuringDeleteCollection: rights that are taken away while a collection is deleted end
// it with 403, though several of its objects are decided again at once (with -race: they share
// nothing of the answer).
func TestRevokedDuringDeleteCollection(t *testing.T) {
	r := &revoker{}
	e := newEnv(t, func(cfg *apiserver.Config) {
		cfg.Authorizer = r
		cfg.Admission = admission.NewChain([]admission.Named{{Name: "Revoker", Plugin: r}}, nil)
	})
	for i := range 64 {
		if w, answer := e.do(http.MethodPost, maps, nil, fmt.Sprintf(`{"metadata":{"name":"c%d"}}`, i)); w.StatusCode != http.StatusCreated {
			t.Fatal(answer)
		}
	}
	r.revoke = func() {
		r.refuses.Store(true)
		// Webhooks have changed, so what was decided is decided again.
		put := &proto.Write{Table: "validatingwebhookconfigurations.admissionregistration.k8s.io", Key: "w", Op: proto.Op_OP_PUT, Value: []byte(`{}`)}
		if _, err := e.mem.Propose(context.Background(), put); err != nil {
			t.Error(err)
		}
	}
	if w, answer := e.do(http.MethodDelete, maps, nil, ""); w.StatusCode != http.StatusForbidden {
		t.Errorf("%d %.200s", w.StatusCode, answer)
	}
	if n := r.deciding.Load(); n < 8 {
		t.Errorf("%d deletions were decided at once", n)
	}
}
