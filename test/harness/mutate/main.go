package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// memory bounds each process of a mutant: a loop that never ends may take memory in each round.
const memory = 16 << 30

func main() {
	n := flag.Int("n", 150, "how many random mutants of each package; 0 is all")
	seed := flag.Uint64("seed", 1, "of the random sample")
	also := flag.String("also", "", "more `PACKAGES` whose tests may notice a mutant, beside those of companions.txt")
	workers := flag.Int("workers", 2, "how many mutants are tested at once")
	out := flag.String("o", "", "append the mutants that live, as the files of equivalent name them, to a `FILE`")
	only := flag.String("only", "", "test only the mutants that a `FILE` of -o names")
	flag.Parse()
	if *workers < 1 || *n < 0 || flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "mutate: give at least one package, at least one worker, and -n of 0 or more")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{Cur: memory, Max: memory}); err != nil {
		fmt.Fprintln(os.Stderr, "mutate: bound memory:", err)
		os.Exit(1)
	}
	root, err := moduleRoot(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
	var names []string
	if *only != "" {
		text, err := os.ReadFile(*only)
		if err != nil {
			fmt.Fprintln(os.Stderr, "mutate:", err)
			os.Exit(1)
		}
		names = strings.Split(string(text), "\n")
	}
	code := 0
	for _, p := range flag.Args() {
		c := &campaign{
			root: root, pkg: p, n: *n, seed: *seed, workers: *workers, also: strings.Fields(*also), only: names,
		}
		if err := c.run(ctx); err != nil {
			fmt.Fprintf(os.Stderr, "mutate: %s: %v\n", p, err)
			if code = 1; ctx.Err() == nil {
				continue
			} // what was found until it was stopped is reported
		}
		if err := c.report(*out); err != nil {
			fmt.Fprintf(os.Stderr, "mutate: %s: %v\n", p, err)
			code = 1
		}
	}
	os.Exit(code)
}

func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	return strings.TrimSpace(string(out)), err
}

// A campaign tests the mutants of one package.
type campaign struct {
	root, pkg string
	n         int
	seed      uint64
	workers   int
	also      []string
	only      []string // keys of mutants; none: all

	limits map[string]time.Duration // per package that tests

	mu                           sync.Mutex
	killed, timeouts, impossible int
	equivalent                   int
	lived                        []mutant
}

// A verdict says what became of a mutant.
type verdict int

const (
	lived verdict = iota
	killed
	timedOut
	impossible // it does not compile
)

// run samples and tests mutants until enough of them compiled.
func (c *campaign) run(ctx context.Context) error {
	equals, err := allEquivalents()
	if err != nil {
		return err
	}
	all, path, err := c.list(ctx)
	if err != nil {
		return err
	}
	tests := append([]string{c.pkg}, readCompanions(companions)[path]...)
	tests = append(tests, c.also...)
	c.limits = map[string]time.Duration{}
	for _, p := range tests {
		// Twice, so that the second time has compiled nothing.
		for range 2 {
			began := time.Now()
			if v, out := c.test(ctx, p, "", 10*time.Minute); v != lived {
				return fmt.Errorf("the tests of %s fail without a mutant:\n%s", p, out)
			}
			c.limits[p] = 10*time.Second + 5*time.Since(began)
		}
	}
	if c.only != nil {
		all = slices.DeleteFunc(all, func(m mutant) bool { return !slices.Contains(c.only, m.key(c.root)) })
	}
	rand.New(rand.NewPCG(c.seed, 0)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	want := c.n
	if want == 0 || want > len(all) {
		want = len(all)
	}
	next := make(chan mutant)
	var workers sync.WaitGroup
	for range c.workers {
		workers.Go(func() {
			for m := range next {
				c.try(ctx, m, tests)
			}
		})
	}
	for _, m := range all {
		if _, is := equals[m.key(c.root)]; is {
			c.mu.Lock()
			c.equivalent++
			c.mu.Unlock()
		} else {
			select {
			case next <- m:
			case <-ctx.Done():
			}
		}
		c.mu.Lock()
		enough := c.killed+c.timeouts+len(c.lived)+c.equivalent >= want
		c.mu.Unlock()
		if enough || ctx.Err() != nil {
			break
		}
	}
	close(next)
	workers.Wait()
	return ctx.Err()
}

// list returns the mutants of the package and its path in the module.
func (c *campaign) list(ctx context.Context) ([]mutant, string, error) {
	list := exec.CommandContext(ctx, "go", "list", "-json=Dir,GoFiles", c.pkg)
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, "", fmt.Errorf("go list: %w", err)
	}
	var p struct {
		Dir     string
		GoFiles []string
	}
	if err := json.Unmarshal(out, &p); err != nil {
		return nil, "", fmt.Errorf("go list: %w", err)
	}
	path, err := filepath.Rel(c.root, p.Dir)
	if err != nil {
		return nil, "", err
	}
	all, err := findAll(p.Dir, p.GoFiles)
	return all, "./" + filepath.ToSlash(path), err
}

// try tests one mutant by the packages in turn until one notices it.
func (c *campaign) try(ctx context.Context, m mutant, tests []string) {
	overlay, remove, err := m.overlay()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		return
	}
	defer remove()
	v := lived
	for _, p := range tests {
		if v, _ = c.test(ctx, p, overlay, c.limits[p]); v != lived {
			break
		}
	}
	if ctx.Err() != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch v {
	case killed:
		c.killed++
	case timedOut:
		c.timeouts++
	case impossible:
		c.impossible++
	default:
		c.lived = append(c.lived, m)
		fmt.Println("lives", m)
	}
}

// overlay writes a mutant and the overlay that puts it in its place.
func (m mutant) overlay() (path string, remove func(), err error) {
	source, err := os.ReadFile(m.file)
	if err != nil {
		return "", nil, err
	}
	dir, err := os.MkdirTemp("", "quorate-mutant-")
	if err != nil {
		return "", nil, err
	}
	changed := filepath.Join(dir, filepath.Base(m.file))
	path = filepath.Join(dir, "overlay.json")
	text, err := json.Marshal(map[string]map[string]string{"Replace": {m.file: changed}})
	err = errors.Join(err, os.WriteFile(changed, m.mutate(source), 0o600), os.WriteFile(path, text, 0o600))
	return path, func() { os.RemoveAll(dir) }, err
}

// test runs the tests of a package. A build that fails is told by go test's exit status and output.
func (c *campaign) test(ctx context.Context, pkg, overlay string, limit time.Duration) (verdict, string) {
	args := []string{"test", "-short", "-failfast", "-vet=off", "-count=1", "-timeout", limit.String()}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	// Tests may wait for a process or a lock when they are stopped: nothing waits for them.
	ctx, cancel := context.WithTimeout(ctx, limit+2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", append(args, pkg)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	raw, err := cmd.CombinedOutput()
	out := string(raw)
	switch {
	case err == nil:
		return lived, out
	case ctx.Err() != nil || strings.Contains(out, "panic: test timed out"):
		return timedOut, out
	case strings.Contains(out, "[build failed]") || strings.Contains(out, "[setup failed]"):
		return impossible, out
	default:
		return killed, out
	}
}

// report prints the figures of a package, and appends the mutants that live to a file.
func (c *campaign) report(path string) error {
	tested := c.killed + c.timeouts + len(c.lived)
	share := "-"
	if tested > 0 {
		share = strconv.FormatFloat(100*float64(c.killed+c.timeouts)/float64(tested), 'f', 1, 64) + " %"
	}
	fmt.Printf("%s: %d mutants: %d killed, %d of them by time; %d live, %d equivalent, %d did not compile: %s killed\n",
		c.pkg, tested+c.equivalent, c.killed+c.timeouts, c.timeouts, len(c.lived), c.equivalent, c.impossible, share)
	if path == "" {
		return nil
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	for _, m := range c.lived {
		fmt.Fprintln(file, m.key(c.root))
	}
	return file.Close()
}
