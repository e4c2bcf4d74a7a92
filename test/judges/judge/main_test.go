package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/judges/history"
)

// TestJudge: a history that was saved is judged and drawn as the one that was not.
func TestJudge(t *testing.T) {
	dir := t.TempDir()
	good, bad := "../check/testdata/good-basic.txt", filepath.Join(dir, "bad.json.gz")
	h, err := history.Load("../check/testdata/stale-read.txt")
	must.OK(t, err)
	must.OK(t, history.Save(bad, h))
	if back, err := history.Load(bad); err != nil || !reflect.DeepEqual(h, back) {
		t.Fatalf("saved %+v, loaded %+v, %v", h, back, err)
	}
	var out bytes.Buffer
	if err := run([]string{"-o", dir, good}, &out); err != nil {
		t.Errorf("a good history: %v", err)
	}
	if err := run([]string{"-o", dir, good, bad}, &out); !errors.Is(err, errBroken) {
		t.Errorf("a bad history: %v", err)
	}
	if !strings.Contains(out.String(), "VIOLATION read/stale: #2 c2 n2 get a MostRecent") {
		t.Errorf("it prints %s", &out)
	}
	for _, name := range []string{"index.html", "bad.html", "good-basic.html"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	must.OK(t, os.WriteFile(filepath.Join(dir, "none"), []byte("nonsense"), 0o600))
	if err := run([]string{filepath.Join(dir, "none")}, &out); err == nil || errors.Is(err, errBroken) {
		t.Errorf("nonsense: %v", err)
	}
}
