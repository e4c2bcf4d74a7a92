package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"sigs.k8s.io/yaml"
)

// perRow bounds the time of a row.
const perRow = 10 * time.Minute

// A row is one load of a tool.
type row struct {
	tool, name string
	run        func(ctx context.Context, b *bench, name string) (failed int, err error)
}

// rows are all of them. One starts with the servers as the rows of its tool before it leave them.
var rows = []row{
	{"kube-burner", "api-intensive, 40 × 100", kubeBurner{"api-intensive", 3, 40, 100}.run},
	{"kube-burner", "api-intensive, 60 × 300", kubeBurner{"api-intensive", 3, 60, 300}.run},
	{"kube-burner", "churn, 40 × 300", kubeBurner{"churn", 3, 40, 300}.run},
	{"kube-burner", "crd-scale, 100", kubeBurner{"crd-scale", 1, 100, 20}.run},
	{"kperf", "node10_job1_pod1k", kperf{"", 8000}.run},
	{"kperf", "node10_job1_pod100", kperf{"", 400}.run},
	{"kperf", "read_update", kperf{"", 3000}.run},
	{"kperf", "list_configmaps", kperf{"", 600}.run},
	{"kperf", "mix", kperf{"test/judges/load/kperf/mix.yaml", 6000}.run},
	{"clusterloader2", "without-pods", clusterLoader},
}

// kubeBurner is a load of kube-burner: instances of it at once, one for each server.
type kubeBurner struct {
	config                     string
	instances, iterations, qps int
}

func (k kubeBurner) run(ctx context.Context, b *bench, name string) (int, error) {
	const ours = "test/judges/load/kube-burner/"
	published := filepath.Join(b.tools, "kube-burner/examples/workloads")
	failures := make([]int, k.instances)
	errs := make([]error, k.instances)
	var wg sync.WaitGroup
	for i := range k.instances {
		dir, err := b.directory(name, i)
		if err != nil {
			return 0, err
		}
		if err := errors.Join(
			copyFiles(filepath.Join(dir, "templates"), published+"/api-intensive/templates/*", published+"/crd-scale/templates/*", ours+"deployment.yaml"),
			copyFiles(dir, ours+k.config+".yml"),
		); err != nil {
			return 0, err
		}
		wg.Go(func() {
			c := exec.CommandContext(ctx, filepath.Join(b.tools, "bin/kube-burner"), "init", "-c", k.config+".yml", "--kubeconfig", b.kubeconfigs[i], "--skip-log-file", "--timeout", perRow.String())
			c.Dir = dir
			c.Env = append(os.Environ(), "OUT="+filepath.Join(dir, "out"), "INSTANCE="+strconv.Itoa(i), "ITERATIONS="+strconv.Itoa(k.iterations), "QPS="+strconv.Itoa(k.qps))
			// kube-burner ends with 0 when objects could not be patched: its log says it.
			said, err := b.output(c, dir)
			failures[i], errs[i] = bytes.Count(said, []byte("level=error")), err
		})
	}
	wg.Wait()
	return sum(failures), errors.Join(errs...)
}

// kperf is a load of kperf, in a closed loop through all servers: so many requests of the published profile of
// the row's name, or of a profile of ours.
type kperf struct {
	profile string
	total   int
}

func (k kperf) run(ctx context.Context, b *bench, name string) (int, error) {
	dir, err := b.directory(name, 0)
	if err != nil {
		return 0, err
	}
	profile := k.profile
	if profile == "" {
		profile = filepath.Join(b.tools, "kperf/contrib/internal/manifests/loadprofile", name+".yaml")
	}
	raw, err := os.ReadFile(profile)
	if err != nil {
		return 0, err
	}
	config, result := filepath.Join(dir, "profile.yaml"), filepath.Join(dir, "result.json")
	if raw, err = loadProfile(raw); err != nil {
		return 0, fmt.Errorf("%s: %w", profile, err)
	}
	if err := os.WriteFile(config, raw, 0o600); err != nil {
		return 0, err
	}
	c := exec.CommandContext(ctx, filepath.Join(b.tools, "bin/kperf"), "-v", "0", "runner", "run", "--config", config, "--kubeconfig", b.kubeconfigs[len(b.kubeconfigs)-1],
		"--rate", "0", "--total", strconv.Itoa(k.total), "--result", result)
	if _, err := b.output(c, dir); err != nil {
		return 0, err
	}
	raw, err = os.ReadFile(result)
	if err != nil {
		return 0, err
	}
	return kperfErrors(raw, k.total)
}

// loadProfile returns what kperf's runner wants of what its bench command reads.
func loadProfile(raw []byte) ([]byte, error) {
	var published struct {
		LoadProfile json.RawMessage `json:"loadProfile"`
	}
	if err := yaml.Unmarshal(raw, &published); err != nil {
		return nil, err
	}
	if len(published.LoadProfile) == 0 {
		return nil, errors.New("there is no loadProfile")
	}
	return yaml.JSONToYAML(published.LoadProfile)
}

// kperfErrors counts the requests that failed in a result.
func kperfErrors(raw []byte, total int) (int, error) {
	var r struct {
		Total      int            `json:"total"`
		ErrorStats map[string]int `json:"errorStats"`
		Aggregated *struct {
			Total      int            `json:"total"`
			ErrorStats map[string]int `json:"errorStats"`
		} `json:"aggregated"`
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return 0, fmt.Errorf("kperf's result: %w", err)
	}
	if r.Aggregated != nil {
		r.Total, r.ErrorStats = r.Aggregated.Total, r.Aggregated.ErrorStats
	}
	if r.Total != total {
		return 0, fmt.Errorf("kperf's result counts %d requests, want %d", r.Total, total)
	}
	n := 0
	for _, of := range r.ErrorStats {
		n += of
	}
	return n, nil
}

// clusterLoader is the load of ClusterLoader2. Its modules refer to files from the directory of the
// configuration, so that it is put into a copy of the published one.
func clusterLoader(ctx context.Context, b *bench, name string) (int, error) {
	dir, err := b.directory(name, 0)
	if err != nil {
		return 0, err
	}
	const ours = "test/judges/load/clusterloader2/"
	if err := errors.Join(
		os.CopyFS(filepath.Join(dir, "load"), os.DirFS(filepath.Join(b.tools, "perf-tests/clusterloader2/testing/load"))),
		copyFiles(filepath.Join(dir, "load"), ours+"*.yaml"),
	); err != nil {
		return 0, err
	}
	port, err := freePort()
	if err != nil {
		return 0, err
	}
	c := exec.CommandContext(ctx, filepath.Join(b.tools, "bin/clusterloader2"), "--kubeconfig", b.kubeconfigs[len(b.kubeconfigs)-1], "--provider=local", "--nodes=1", "--skip-cluster-verification",
		"--enable-exec-service=false", "--k8s-clients-number=6", "--testconfig=load/without-pods.yaml", "--report-dir="+dir, "--port="+strconv.Itoa(port), "--v=2")
	c.Dir = dir
	_, ran := b.output(c, dir)
	report, err := os.ReadFile(filepath.Join(dir, "junit.xml"))
	if err != nil {
		return 0, errors.Join(ran, err)
	}
	// It ends with an error when a step fails; the report counts these.
	return bytes.Count(report, []byte("<failure")), nil
}

// output runs a tool to its end, keeps what it says in dir, and returns it.
func (b *bench) output(c *exec.Cmd, dir string) ([]byte, error) {
	var said bytes.Buffer
	c.Stdout, c.Stderr = &said, &said
	// Tools start processes of their own.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = 5 * time.Second
	err := c.Run()
	if kept := os.WriteFile(filepath.Join(dir, "log"), said.Bytes(), 0o600); kept != nil {
		err = errors.Join(err, kept)
	}
	if err != nil {
		last := bytes.Split(bytes.TrimSpace(said.Bytes()), []byte("\n"))
		err = fmt.Errorf("%s: %w: %s", filepath.Base(c.Path), err, bytes.Join(last[max(0, len(last)-3):], []byte(" | ")))
	}
	return said.Bytes(), err
}

// copyFiles copies the files that patterns name into a directory. Of two of a name the last one stays.
func copyFiles(dir string, patterns ...string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			return fmt.Errorf("there are no files %s: %v", pattern, err)
		}
		for _, file := range files {
			raw, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), raw, 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}

func sum(numbers []int) (n int) {
	for _, i := range numbers {
		n += i
	}
	return n
}
