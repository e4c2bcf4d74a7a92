package apiserver_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// quotedWords is n words of a list in JSON, but one.
func quotedWords(prefix string, n, but int) string {
	var words []string
	for i := range n {
		if i != but {
			words = append(words, fmt.Sprintf("%q", fmt.Sprint(prefix, i)))
		}
	}
	return strings.Join(words, ",")
}

// roleNamed is a Role with rules that have n words in each list; rule i is without word i.
func roleNamed(name string, n, rules int, more string) string {
	var list []string
	for i := range rules {
		but := i
		if rules == 1 {
			but = n
		}
		list = append(list, fmt.Sprintf(`{"apiGroups":[%s],"resources":[%s],"verbs":[%s],"resourceNames":[%s]}`,
			quotedWords("g", n, but), quotedWords("r", n, but), quotedWords("v", n, but), quotedWords("n", n, but)))
	}
	return fmt.Sprintf(`{"metadata":{"name":%q},"rules":[%s%s]}`, name, strings.Join(list, ","), more)
}

// TestWideRoles: who may write roles but has little cannot make the server compare for
// minutes, nor answer with megabytes.
func TestWideRoles(t *testing.T) {
	const roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles"
	const mayCreate = `,{"apiGroups":["rbac.authorization.k8s.io"],"resources":["roles"],"verbs":["create"]}`
	e := newEnv(t, nil)
	for user, role := range map[string]string{
		"little": roleNamed("little", 1, 1, mayCreate), "scattered": roleNamed("scattered", 90, 90, mayCreate), "all": roleNamed("all", 1, 1, `,{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}`),
	} {
		binding := fmt.Sprintf(`{"metadata":{"name":%q},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":%[1]q},"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":%[1]q}]}`, user)
		for path, body := range map[string]string{roles: role, strings.Replace(roles, "/roles", "/rolebindings", 1): binding} {
			if w, answer := e.do(http.MethodPost, path, nil, body); w.StatusCode != http.StatusCreated {
				t.Fatalf("%s: %d %.300s", path, w.StatusCode, answer)
			}
		}
	}
	for _, row := range []struct {
		user string
		code int
		says string
	}{
		{"little", http.StatusForbidden, "not currently held"},
		{"scattered", http.StatusUnprocessableEntity, "write them as several roles"},
		{"all", http.StatusCreated, ""},
	} {
		w, answer := e.do(http.MethodPost, roles, http.Header{"Test-User": {row.user}}, roleNamed("wide", 400, 1, ""))
		if row.user == "scattered" {
			w, answer = e.do(http.MethodPost, roles, http.Header{"Test-User": {row.user}}, roleNamed("wide", 90, 1, ""))
		}
		if row.code != http.StatusCreated && len(answer) > 8<<10 {
			t.Errorf("%s: an answer of %d bytes", row.user, len(answer))
		}
		if w.StatusCode != row.code || !strings.Contains(answer, row.says) {
			t.Errorf("%s: %d %.300s", row.user, w.StatusCode, answer)
		}
	}
}
