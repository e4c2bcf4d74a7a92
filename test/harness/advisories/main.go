// Command advisories fails when this module can reach a function that an advisory of Go's vulnerability database
// is about. `make check` runs it:
//
//	go run ./test/harness/advisories -release go1.26.10
//
// The database is made of the module golang.org/x/vulndb, at the version that tools/vulndb pins, so that the check needs
// nothing but the module proxy, and says tomorrow what it says today. govulncheck decides what is reached, from the
// main packages and from what other modules can import.
//
// accepted.txt has the advisories that are reached and accepted. A line there is not for ever: it fails when its day has
// passed, and when nothing reaches its advisory any more.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	var o options
	flag.StringVar(&o.govulncheck, "govulncheck", "tools/bin/govulncheck", "the program of golang.org/x/vuln")
	flag.StringVar(&o.pins, "pins", "tools/vulndb", "the directory of the module that pins golang.org/x/vulndb")
	flag.StringVar(&o.accepted, "accepted", "test/harness/advisories/accepted.txt", "the advisories that are accepted")
	flag.StringVar(&o.cache, "cache", ".cache/vulndb", "where databases are kept")
	flag.StringVar(&o.release, "release", "", "the oldest Go that releases are built with; an older one is told")
	flag.BoolVar(&o.list, "list", false, "print what is reached, and do not compare")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, o, time.Now()); err != nil {
		fmt.Fprintln(os.Stderr, "advisories:", err)
		os.Exit(1)
	}
}

type options struct {
	govulncheck, pins, accepted, cache, release string
	list                                        bool
}

func run(ctx context.Context, out io.Writer, o options, now time.Time) error {
	text, err := os.ReadFile(o.accepted)
	if err != nil {
		return err
	}
	accepted, err := parseAccepted(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", o.accepted, err)
	}
	least, err := goLine(ctx)
	if err != nil {
		return err
	}
	db, err := database(ctx, o)
	if err != nil {
		return err
	}
	report, err := check(ctx, o.govulncheck, db)
	if err != nil {
		return err
	}
	if o.list {
		for _, r := range report.reached {
			fmt.Fprintln(out, r)
		}
		return nil
	}
	if notice := oldGo(report.goVersion, o.release); notice != "" {
		fmt.Fprintln(out, notice)
	}
	if wrong := compare(report, accepted, least, now); len(wrong) > 0 {
		return fmt.Errorf("docs/dependencies.md says what to do about\n%s", strings.Join(wrong, "\n"))
	}
	return nil
}

// database returns the directory of the database, and makes it unless it is there.
func database(ctx context.Context, o options) (string, error) {
	c := exec.CommandContext(ctx, "go", "mod", "download", "-json", vulndb)
	c.Dir = o.pins
	text, err := output(c)
	if err != nil {
		return "", errors.Join(err, errors.New(string(text))) // which has the error
	}
	var module struct{ Version, Dir string }
	if err := json.Unmarshal(text, &module); err != nil {
		return "", err
	}
	dir, err := filepath.Abs(filepath.Join(o.cache, module.Version))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	// The others are of versions that are not pinned any more.
	if err := os.RemoveAll(o.cache); err != nil {
		return "", err
	}
	if err := os.MkdirAll(o.cache, 0o755); err != nil {
		return "", err
	}
	made, err := os.MkdirTemp(o.cache, "new-")
	if err != nil {
		return "", err
	}
	if err := buildDatabase(filepath.Join(module.Dir, "data", "osv"), made); err != nil {
		return "", err
	}
	return dir, os.Rename(made, dir)
}

// check runs govulncheck on all packages of the module in the working directory, with the tags of GOFLAGS.
func check(ctx context.Context, program, db string) (*report, error) {
	c := exec.CommandContext(ctx, program, "-format", "json", "-db", "file://"+filepath.ToSlash(db), "./...")
	// It has all sources of all packages in memory, some gigabytes, and its collector would let them double.
	c.Env = append(os.Environ(), "GOGC=40")
	text, err := output(c)
	if err != nil {
		return nil, err
	}
	r, err := parseReport(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", program, err)
	}
	return r, nil
}

// goLine is the oldest Go that go.mod allows, as go1.26.0.
func goLine(ctx context.Context) (string, error) {
	text, err := output(exec.CommandContext(ctx, "go", "mod", "edit", "-json"))
	if err != nil {
		return "", err
	}
	var mod struct{ Go string }
	if err := json.Unmarshal(text, &mod); err != nil {
		return "", err
	}
	return "go" + mod.Go, nil
}

// output runs a program, and has in its error what that has printed.
func output(c *exec.Cmd) ([]byte, error) {
	var failed bytes.Buffer
	c.Stderr = &failed
	text, err := c.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", strings.Join(c.Args, " "), err, failed.Bytes())
	}
	return text, err
}
