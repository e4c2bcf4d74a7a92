// Overlay puts the planted bugs into copies of the product's sources, and prints the name
// of a file for the option -overlay of go build and go test. Or it builds the product with
// the bugs.
//
//	go run ./test/harness/planted/overlay                  into .cache/overlay of the checkout
//	go run ./test/harness/planted/overlay -o DIR
//	go run ./test/harness/planted/overlay -build PROGRAM
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	out := flag.String("o", "", "write the overlay into `DIR` (default .cache/overlay of the checkout)")
	program := flag.String("build", "", "build `PROGRAM` with the bugs instead of printing the overlay's name")
	flag.Parse()
	if err := run(*out, *program); err != nil {
		fmt.Fprintln(os.Stderr, "overlay:", err)
		os.Exit(1)
	}
}

func run(out, program string) error {
	root, err := checkout()
	if err != nil {
		return err
	}
	switch {
	case out != "":
	case program != "": // tests of several packages build at the same time
		if out, err = os.MkdirTemp("", "overlay"); err != nil {
			return err
		}
		defer os.RemoveAll(out)
	default:
		out = filepath.Join(root, ".cache", "overlay")
	}
	name, err := write(root, out)
	switch {
	case err != nil:
		return err
	case program == "":
		fmt.Println(name)
		return nil
	}
	build := exec.Command("go", "build", "-overlay", name, "-o", program, module+"/cmd/quorate")
	build.Stderr = os.Stderr
	return build.Run()
}

func checkout() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("find the module %s: %w", module, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// write applies all edits to the sources below root, writes the results into dir and
// returns the name of the overlay's description.
func write(root, dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	bugs, err := load()
	if err != nil {
		return "", err
	}
	files, err := apply(bugs, func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(root, name)) })
	if err != nil {
		return "", err
	}
	description := filepath.Join(dir, "overlay.json")
	// Only a directory that an earlier overlay is in is replaced.
	if _, err := os.Stat(description); err == nil {
		if err := os.RemoveAll(dir); err != nil {
			return "", err
		}
	}
	replace := map[string]string{}
	for name, content := range files {
		to := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, content, 0o644)); err != nil {
			return "", err
		}
		replace[filepath.Join(root, name)] = to
	}
	text, err := json.MarshalIndent(map[string]any{"Replace": replace}, "", "\t")
	if err != nil {
		return "", err
	}
	return description, os.WriteFile(description, text, 0o644)
}
