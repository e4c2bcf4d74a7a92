package apiserver_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/quorate/quorate/apiserver"
)

// stuck is a client that takes nothing of its answer until it is let go.
type stuck struct {
	*httptest.ResponseRecorder
	begun, free chan struct{}
	once        sync.Once
}

func (s *stuck) Write(b []byte) (int, error) {
	s.once.Do(func() { close(s.begun) })
	<-s.free
	return s.ResponseRecorder.Write(b)
}

// TestAnswerHoldsNoRoom: a client that does not read the answer of a write keeps nobody from
// writing: what its body cost was given back before the answer.
func TestAnswerHoldsNoRoom(t *testing.T) {
	for _, row := range []struct {
		name  string
		limit func(*apiserver.Config)
		body  string // with a name to fill in
		code  int
		query string
	}{
		{"what is decoded", func(c *apiserver.Config) { c.Limits.DecodedBytes = 16 << 20 },
			`{"metadata":{"name":"%s"},"data":{"%[2]s":""}}`, http.StatusCreated, ""},
		{"a dry run", func(c *apiserver.Config) { c.Limits.DecodedBytes = 16 << 20 },
			`{"metadata":{"name":"%s"},"data":{"%[2]s":""}}`, http.StatusCreated, "?dryRun=All"},
		{"a refusal", func(c *apiserver.Config) { c.Limits.DecodedBytes = 16 << 20 },
			`{"metadata":{"name":"%s"},"data":{"/":"","%[2]s":""}}`, http.StatusUnprocessableEntity, ""},
		{"the body itself", func(c *apiserver.Config) { c.Limits.WriteBytes = 1 << 20 },
			`{"metadata":{"name":"%s"},"data":{"%[2]s":""}}`, http.StatusCreated, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			e := newEnv(t, row.limit)
			free := make(chan struct{})
			var wg sync.WaitGroup
			defer func() { close(free); wg.Wait() }()
			keys := make([]string, 12_000)
			for i := range keys {
				keys[i] = fmt.Sprintf("key-number-%d", i)
			}
			many := strings.Join(keys, `":"","`)
			for n := range 6 {
				body := fmt.Sprintf(row.body, fmt.Sprint("m", n), many)
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				r := httptest.NewRequestWithContext(ctx, http.MethodPost, maps+row.query, strings.NewReader(body))
				w := &stuck{ResponseRecorder: httptest.NewRecorder(), begun: make(chan struct{}), free: free}
				wg.Go(func() { e.api.ServeHTTP(w, r) })
				select {
				case <-w.begun:
				case <-ctx.Done():
					t.Fatalf("write %d has no answer", n)
				}
				if w.Code != row.code {
					t.Errorf("write %d: %d", n, w.Code)
				}
			}
		})
	}
}
