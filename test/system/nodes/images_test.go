//go:build linux

package nodes

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
)

// The images of the site: nothing is pulled. pauseImage is the one that kubelet keeps.
const (
	pauseImage = "registry.k8s.io/pause:3.10.1"
	toolsImage = "site.test/tools:1"
)

// applets are names of busybox in the tools image.
var applets = []string{"sh", "cat", "echo", "ls", "sleep", "tar", "true", "false", "stty", "tty", "ps", "id", "kill", "nslookup", "nc", "rm", "mkdir", "date", "test", "touch", "head", "grep"}

// makeImage writes an image of one layer, in the form of `docker save`: files by their paths in it,
// and symbolic links to busybox.
func makeImage(t *testing.T, to, name string, files map[string]string, links []string, entrypoint ...string) {
	t.Helper()
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	add := func(h *tar.Header, data []byte) {
		h.Size = int64(len(data))
		must.OK(t, w.WriteHeader(h))
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"bin/", "tmp/", "etc/"} {
		add(&tar.Header{Name: dir, Typeflag: tar.TypeDir, Mode: 0o1777}, nil)
	}
	add(&tar.Header{Name: "etc/passwd", Typeflag: tar.TypeReg, Mode: 0o644}, []byte("root:x:0:0:root:/:/bin/sh\n"))
	files = maps.Clone(files)
	for _, program := range slices.Collect(maps.Values(files)) {
		maps.Copy(files, libraries(t, program))
	}
	for _, at := range slices.Sorted(maps.Keys(files)) {
		data, err := os.ReadFile(files[at])
		must.OK(t, err)
		add(&tar.Header{Name: at, Typeflag: tar.TypeReg, Mode: 0o755}, data)
	}
	for _, link := range links {
		add(&tar.Header{Name: path.Join("bin", link), Typeflag: tar.TypeSymlink, Linkname: "busybox", Mode: 0o777}, nil)
	}
	must.OK(t, w.Close())
	config := marshal(t, map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Env": []string{"PATH=/bin"}, "Entrypoint": entrypoint, "WorkingDir": "/"},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest(layer.Bytes())}},
	})
	configName := fmt.Sprintf("%x.json", sha256.Sum256(config))
	manifest := marshal(t, []map[string]any{{"Config": configName, "RepoTags": []string{name}, "Layers": []string{"layer.tar"}}})

	var image bytes.Buffer
	w = tar.NewWriter(&image)
	add(&tar.Header{Name: configName, Typeflag: tar.TypeReg, Mode: 0o644}, config)
	add(&tar.Header{Name: "layer.tar", Typeflag: tar.TypeReg, Mode: 0o644}, layer.Bytes())
	add(&tar.Header{Name: "manifest.json", Typeflag: tar.TypeReg, Mode: 0o644}, manifest)
	must.OK(t, w.Close())
	writeFile(t, to, image.Bytes())
}

// libraries are what a program is linked to, by their paths in an image.
func libraries(t *testing.T, program string) map[string]string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ldd", program).CombinedOutput()
	if err != nil && !strings.Contains(string(out), "not a dynamic executable") {
		t.Fatalf("ldd %s: %v: %s", program, err, out)
	}
	files := map[string]string{}
	for _, word := range strings.Fields(string(out)) {
		if strings.HasPrefix(word, "/") {
			files[strings.TrimSuffix(strings.TrimPrefix(word, "/"), ":")] = strings.TrimSuffix(word, ":")
		}
	}
	return files
}

func digest(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	must.OK(t, err)
	return b
}

// makeImages writes the images of the site into a directory, and returns their files.
func makeImages(t *testing.T, bin, dir string) []string {
	t.Helper()
	busybox := filepath.Join(bin, "debian/bin/busybox")
	inside := filepath.Join(bin, "nodes-inside")
	pause, tools := filepath.Join(dir, "pause.tar"), filepath.Join(dir, "tools.tar")
	makeImage(t, pause, pauseImage, map[string]string{"bin/inside": inside}, nil, "/bin/inside", "pause")
	makeImage(t, tools, toolsImage, map[string]string{"bin/busybox": busybox, "bin/inside": inside}, applets, "/bin/inside")
	return []string{pause, tools}
}

// addImage gives all workers an image of one program, site.test/PROGRAM:1.
func (s *Site) addImage(t *testing.T, program string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), program+".tar")
	makeImage(t, file, "site.test/"+program+":1", map[string]string{"bin/" + program: filepath.Join(s.bin, program)}, nil, "/bin/"+program)
	for _, w := range s.workers {
		w.run(t, "ctr", "-n", "k8s.io", "images", "import", file)
	}
}
