package main_test

import (
	"archive/zip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
)

const (
	module  = "github.com/quorate/quorate"
	version = "v0.0.0-test"
)

// TestInstall installs the programs as people do who have no checkout. The module proxy is a directory, and
// what the module requires comes from this machine's module cache: no network is needed.
func TestInstall(t *testing.T) {
	cache := strings.TrimSpace(run(t, exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE")))
	proxy, bin := t.TempDir(), t.TempDir()
	publish(t, "../..", proxy)

	install := exec.CommandContext(t.Context(), "go", "install", module+"/cmd/quorate@"+version, module+"/cmd/quorate-bench@"+version)
	install.Dir = t.TempDir() // outside of any module
	install.Env = append(os.Environ(), "GOBIN="+bin, "GOSUMDB=off",
		"GOPROXY=file://"+proxy+",file://"+filepath.Join(cache, "cache", "download"),
		// A cache of its own: the version is another module each time. TempDir cannot remove what is read-only.
		"GOMODCACHE="+t.TempDir(), "GOFLAGS=-modcacherw "+os.Getenv("GOFLAGS"))
	run(t, install)

	files, err := os.ReadDir(bin)
	must.OK(t, err)
	if len(files) != 2 || files[0].Name() != "quorate" || files[1].Name() != "quorate-bench" {
		t.Fatalf("installed %v, not quorate and quorate-bench", files)
	}
	quorate := filepath.Join(bin, "quorate")
	if out := run(t, exec.CommandContext(t.Context(), quorate, "version")); !strings.HasPrefix(out, "quorate "+version+" (go1.") {
		t.Errorf("quorate version: %s", out)
	}
	// The program beside it is found.
	if out := run(t, exec.CommandContext(t.Context(), quorate, "bench", "--help")); !strings.HasPrefix(out, "Measure a cluster\n") {
		t.Errorf("quorate bench --help: %s", out)
	}
}

// run returns what a command prints on standard output.
func run(t *testing.T, c *exec.Cmd) string {
	t.Helper()
	var stderr strings.Builder
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(c.Args, " "), err, out, stderr.String())
	}
	return string(out)
}

// publish writes the module whose checkout is in root into a proxy's directory, as https://go.dev/ref/mod
// describes it. The files are those that git knows, less those of the modules below root. The go
// command refuses names and sizes that no module may have when it unpacks them.
func publish(t *testing.T, root, proxy string) {
	t.Helper()
	dir := filepath.Join(proxy, module, "@v")
	must.OK(t, os.MkdirAll(dir, 0o755))
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	must.OK(t, err)
	info, err := json.Marshal(map[string]string{"Version": version, "Time": "2026-01-01T00:00:00Z"})
	must.OK(t, err)
	for name, content := range map[string][]byte{"list": []byte(version + "\n"), version + ".info": info, version + ".mod": mod} {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), content, 0o644))
	}
	archive, err := os.Create(filepath.Join(dir, version+".zip"))
	must.OK(t, err)
	defer archive.Close()
	z := zip.NewWriter(archive)
	list := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = root
	files := strings.Split(strings.TrimSuffix(run(t, list), "\x00"), "\x00")
	others := []string{}
	for _, name := range files {
		if path.Base(name) == "go.mod" && name != "go.mod" {
			others = append(others, path.Dir(name)+"/")
		}
	}
	for _, name := range files {
		if err := add(z, root, name, others); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	must.OK(t, z.Close())
}

func add(z *zip.Writer, root, name string, others []string) error {
	for _, o := range others {
		if strings.HasPrefix(name, o) {
			return nil
		}
	}
	stat, err := os.Lstat(filepath.Join(root, name))
	if os.IsNotExist(err) { // deleted, and not yet committed
		return nil
	}
	if err != nil || !stat.Mode().IsRegular() {
		return err
	}
	from, err := os.Open(filepath.Join(root, name))
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := z.Create(fmt.Sprintf("%s@%s/%s", module, version, name))
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return err
}
