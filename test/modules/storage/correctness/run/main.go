// Run compiles upstream's correctness package beside ours and runs the tests that need it:
//
//	go run ./correctness/run [ARGUMENTS OF go test]      from test/modules/storage
//
// Upstream's files come out of its module's archive, which `go mod download` fetches and
// this program checks against the sum below. They live in a temporary directory for as long as the
// tests run, and stand in test/modules/storage/correctness by go's -overlay: nothing of them is kept.
// The archive is opened here because go unpacks no module that asks for a newer Go.
package main

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// What is fetched, and what its archive must be.
const (
	module  = "k8s.io/apiserver"
	version = "v0.38.0-alpha.2"
	sum     = "h1:LcfGQZId0PWIZOqORj04sK6u7g4a47+hqGiOq4v+HIU="
	within  = module + "@" + version + "/pkg/storage/testing/correctness"
)

// since are options that 0.36 does not have: nobody sets them. Upstream's files look at them
// only to refuse what its model cannot do.
var since = []string{"RecordTimestamps", "ExpectTransformOrDecodeError"}

func main() {
	err := run(os.Args[1:])
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		os.Exit(failed.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "correctness:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	dir, err := os.MkdirTemp("", "quorate-correctness-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	archive, err := download(dir)
	if err != nil {
		return fmt.Errorf("download %s@%s: %w", module, version, err)
	}
	overlay, err := unpack(archive, dir)
	if err != nil {
		return fmt.Errorf("unpack %s: %w", archive, err)
	}
	test := exec.Command("go", append([]string{"test", "-count=1", "-timeout=15m", "-overlay=" + overlay, "-tags=correctness"}, args...)...)
	test.Args = append(test.Args, ".", "./correctness")
	test.Stdout, test.Stderr = os.Stdout, os.Stderr
	return test.Run()
}

// download returns the module's archive. It runs outside of any module, so that no go.mod
// asks for what this module asks for.
func download(dir string) (archive string, err error) {
	fetch := exec.Command("go", "mod", "download", "-json", module+"@"+version)
	fetch.Dir, fetch.Env = dir, append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	fetch.Stderr = os.Stderr
	// It fails behind the download if the module wants a newer Go; what it tells is complete.
	text, failed := fetch.Output()
	var told struct{ Zip, Sum, Error string }
	if err := json.Unmarshal(text, &told); err != nil {
		return "", errors.Join(failed, err)
	}
	switch {
	case told.Zip == "":
		return "", errors.Join(failed, errors.New(told.Error))
	case told.Sum != sum:
		return "", fmt.Errorf("its sum is %s, not %s", told.Sum, sum)
	}
	return told.Zip, nil
}

// unpack writes the package's files, without its tests, and the overlay that puts them
// where the package is imported from.
func unpack(archive, dir string) (overlay string, err error) {
	here, err := filepath.Abs("correctness")
	if err != nil {
		return "", err
	}
	z, err := zip.OpenReader(archive)
	if err != nil {
		return "", err
	}
	defer z.Close()
	replace := map[string]string{}
	for _, f := range z.File {
		name := path.Base(f.Name)
		if path.Dir(f.Name) != within || strings.HasSuffix(name, "_test.go") {
			continue
		}
		to := filepath.Join(dir, name)
		if err := write(f, to); err != nil {
			return "", err
		}
		replace[filepath.Join(here, name)] = to
	}
	if len(replace) == 0 {
		return "", errors.New("it has no " + within)
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, text, 0o600)
}

func write(f *zip.File, to string) error {
	in, err := f.Open()
	if err != nil {
		return err
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, 1<<20))
	if err != nil {
		return err
	}
	for _, option := range since {
		text = bytes.ReplaceAll(text, []byte("opts."+option), []byte("false"))
	}
	return os.WriteFile(to, text, 0o600)
}
