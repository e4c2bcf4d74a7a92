package membership

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
)

func TestReadCluster(t *testing.T) {
	for _, c := range []struct{ name, content, want, wrong string }{
		{"part of one", `{"version":1,"nodeID":"a","clusterID":"c"}`, "c", ""},
		{"not yet", `{"version":1,"nodeID":"a"}`, "", ""},
		{"damaged", `{"version":`, "", "unexpected end of JSON input"},
		{"of a later release", `{"version":2,"clusterID":"c"}`, "", "has version 2, this release knows 1"},
	} {
		dir := t.TempDir()
		must.OK(t, os.WriteFile(filepath.Join(dir, identityFile), []byte(c.content), 0o600))
		got, err := ReadCluster(dir)
		if string(got) != c.want || (err != nil) != (c.wrong != "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
	}
	dir := t.TempDir()
	if got, err := ReadCluster(dir); got != "" || err != nil {
		t.Errorf("a directory without a node: %q, %v", got, err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) > 0 {
		t.Errorf("it has made %s", entries[0].Name())
	}
}
