package membership

import (
	"net/http"
	"strings"
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

// TestUnauthorized: a 401 of the API server says what may be behind it; another text stays as it is.
func TestUnauthorized(t *testing.T) {
	for body, hint := range map[string]bool{
		`{"kind":"Status","reason":"Unauthorized","message":"Unauthorized"}`: true,
		`{"error":"the join token is not valid","code":"InvalidToken"}`:      false,
	} {
		err := answerError(http.StatusUnauthorized, []byte(body))
		if got := strings.Contains(err.Error(), "DATA-DIR/admin.kubeconfig"); got != hint || hint && !strings.HasPrefix(err.Error(), "Unauthorized: ") {
			t.Errorf("%s: %v", body, err)
		}
	}
}
