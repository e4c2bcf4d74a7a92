package auth

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
)

// TestReadTokensFrom: a device is not read without end.
func TestReadTokensFrom(t *testing.T) {
	if _, err := ReadTokens("/dev/zero"); err == nil || !strings.Contains(err.Error(), "/dev/zero is not a file") {
		t.Error(err)
	}
}

// TestReadTokens: files in upstream's format, and what is wrong with others.
func TestReadTokens(t *testing.T) {
	for _, x := range []struct {
		name, text string
		users      map[string]*User // nil: refused
	}{
		{"none", "", map[string]*User{"a": nil, "": nil}},
		{"without groups", "a,anna,1\n", map[string]*User{"a": {Name: "anna", UID: "1"}, "b": nil, "": nil}},
		{"with groups", "a,anna,1,\"g1, g2\"\nb,bert,2,g3\n", map[string]*User{
			"a": {Name: "anna", UID: "1", Groups: []string{"g1", "g2"}}, "b": {Name: "bert", UID: "2", Groups: []string{"g3"}}}},
		{"more columns", "a,anna,1,g,what,else\n", map[string]*User{"a": {Name: "anna", UID: "1", Groups: []string{"g"}}}},
		{"no token", ",anna,1\nb,bert,2\n", map[string]*User{"": nil, "b": {Name: "bert", UID: "2"}}},
		{"twice", "a,anna,1\na,bert,2\n", map[string]*User{"a": {Name: "bert", UID: "2"}}},
		{"two columns", "a,anna\n", nil},
		{"an open quote", "a,anna,1,\"g\n", nil},
	} {
		path := filepath.Join(t.TempDir(), "tokens.csv")
		must.OK(t, os.WriteFile(path, []byte(x.text), 0o600))
		tokens, err := ReadTokens(path)
		if (err == nil) != (x.users != nil) {
			t.Errorf("%s: %v", x.name, err)
			continue
		}
		for token, want := range x.users {
			u, ok, err := tokens.AuthenticateToken(t.Context(), token)
			if err != nil || ok != (want != nil) || !reflect.DeepEqual(u, want) {
				t.Errorf("%s, token %q: %+v, %v, %v; want %+v", x.name, token, u, ok, err, want)
			}
		}
	}
	if _, err := ReadTokens(filepath.Join(t.TempDir(), "missing")); err == nil {
		t.Error("a file that is missing is read")
	}
}
