package commands

import (
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/quorate/quorate/membership"
)

// TestTokenListIsWholeOrFails: a list without the tokens of workers is an error, unless the user may not
// read these; what could be listed is printed.
func TestTokenListIsWholeOrFails(t *testing.T) {
	for _, x := range []struct {
		code   int
		reason string
		want   error
		text   string
	}{
		{http.StatusInternalServerError, "ServerTimeout", membership.ErrNoQuorum, "list the tokens of workers: the cluster has no quorum: of 2 voters n1 answers, and 2 are needed; n2 at host-2:7443: dead."},
		{http.StatusInternalServerError, "InternalError", nil, "list the tokens of workers: because"},
		{http.StatusForbidden, "Forbidden", nil, ""},
	} {
		t.Run(x.reason, func(t *testing.T) {
			f := newFakeAPI(t)
			f.refuse("GET "+secretsPath, x.code, x.reason, "because")
			for _, output := range []string{"table", "json"} {
				out, err := tryCommand(t, "token", "list", "--output", output, "--kubeconfig", f.kubeconfig("admin"))
				if !strings.Contains(out, "for-a-node") {
					t.Errorf("it lists %s", out)
				}
				switch {
				case x.text == "":
					if err != nil || !strings.Contains(out, "warning: list the tokens of workers: because") {
						t.Errorf("%v: %s", err, out)
					}
				case err == nil || !strings.Contains(err.Error(), x.text) || x.want != nil && !errors.Is(err, x.want):
					t.Errorf("%v, want %s", err, x.text)
				}
			}
		})
	}
}

// TestWorkerTokenOfANewCluster: the command waits for what machines find the cluster by.
func TestWorkerTokenOfANewCluster(t *testing.T) {
	f := newFakeAPI(t)
	asked := 0
	f.refuses["GET "+infoPath] = func(w http.ResponseWriter) {
		if asked++; asked < 3 {
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"kind":"Status","reason":"NotFound","message":"configmaps \"cluster-info\" not found"}`)
			return
		}
		fmt.Fprint(w, `{"kind":"ConfigMap","data":{"kubeconfig":"clusters:\n- cluster:\n    server: https://127.0.0.1:6443\n    certificate-authority-data: `+
			base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.server.Certificate().Raw}))+`\n"}}`)
	}
	f.refuses["POST "+secretsPath] = func(w http.ResponseWriter) { fmt.Fprint(w, "{}") }
	out, err := tryCommand(t, "token", "create", "--worker", "--kubeconfig", f.kubeconfig("admin"))
	if err != nil || asked != 3 || !strings.Contains(out, "kubeadm join 127.0.0.1:6443 --token ") {
		t.Errorf("asked %d times: %v: %s", asked, err, out)
	}
}
