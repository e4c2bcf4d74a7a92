package zpages

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestPages(t *testing.T) {
	flagz := Flagz(map[string]string{"b": "2", "a": "1"})
	statusz := Statusz(time.Now().Add(-time.Hour), "v1.36.3", "1.36", []string{"/livez"})
	for _, c := range []struct {
		h            http.Handler
		method       string
		accept, want string
		code         int
	}{
		{flagz, "GET", "", "\napiserver flagz\nWarning: This endpoint", 200},
		{flagz, "GET", "*/*", "\na=1\nb=2\n", 200},
		{flagz, "GET", "text/html, text/*;q=0.5", "\na=1\nb=2\n", 200},
		{flagz, "GET", "application/json;v=v1beta1;g=config.k8s.io;as=Flagz", `{"kind":"Flagz","apiVersion":"config.k8s.io/v1beta1","metadata":{"name":"apiserver"},"flags":{"a":"1","b":"2"}}`, 200},
		{flagz, "GET", "application/json", "text/plain", 406},
		{flagz, "GET", "application/json;v=v1beta1;g=config.k8s.io;as=Statusz", "text/plain", 406},
		{flagz, "POST", "", "", 405},
		{statusz, "GET", "", "Up: 1h0m0s\n", 200},
		{statusz, "GET", "", "Emulation version: 1.36\nPaths: /livez\n", 200},
		{statusz, "GET", "application/json;v=v1beta1;g=config.k8s.io;as=Statusz", `"uptimeSeconds":3600,`, 200},
	} {
		r := httptest.NewRequest(c.method, "/", nil)
		r.Header.Set("Accept", c.accept)
		w := httptest.NewRecorder()
		c.h.ServeHTTP(w, r)
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s %q: %d %s", c.method, c.accept, w.Code, w.Body)
		}
	}
}
