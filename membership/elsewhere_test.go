package membership

import (
	"net/http"
	"testing"
)

// TestAsksElsewhere: a node that serves nothing says nothing about the others.
func TestAsksElsewhere(t *testing.T) {
	for _, row := range []struct {
		code int
		body string
		want bool
	}{
		{http.StatusServiceUnavailable, `{"kind":"Status","message":"this node was removed from the cluster"}`, true},
		{http.StatusInternalServerError, `{"kind":"Status","reason":"ServerTimeout","message":"try again"}`, true},
		{http.StatusInternalServerError, `{"kind":"Status","reason":"InternalError","message":"broken"}`, false},
		{http.StatusForbidden, `{"kind":"Status","message":"forbidden"}`, false},
		{http.StatusGatewayTimeout, `{"kind":"Status","message":"the outcome is unknown"}`, false},
		{http.StatusBadRequest, `no JSON`, false},
	} {
		if got := asksElsewhere(answerError(row.code, []byte(row.body))); got != row.want {
			t.Errorf("%d %s: asks another node: %v", row.code, row.body, got)
		}
	}
}
