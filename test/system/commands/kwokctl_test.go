package commands

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/test/harness/cluster"
)

// TestKwokctl: kwokctl makes its clusters with our program where it starts kube-apiserver and etcd; they
// are kept over a stop, which is a kill, and nothing is left when they are deleted.
func TestKwokctl(t *testing.T) {
	cluster.SkipInShort(t, "it needs bin/kwokctl")
	programs := filepath.Dir(cluster.KubectlPath())
	kwokctl := filepath.Join(programs, "kwokctl")
	if _, err := os.Stat(kwokctl); errors.Is(err, os.ErrNotExist) {
		t.Fatalf("%v: run 'make kwok'", err)
	}
	dir := t.TempDir()
	for _, name := range []string{"kube-apiserver", "etcd"} {
		if err := os.Symlink(cluster.Binary(), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	try := func(args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, kwokctl, append([]string{"--name", "q"}, args...)...)
		cmd.Env = cluster.CleanEnv("HOME="+dir, "KWOK_WORKDIR="+filepath.Join(dir, "work"), "PATH="+filepath.Dir(cluster.KubectlPath())+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	run := func(args ...string) string {
		t.Helper()
		out, err := try(args...)
		if err != nil {
			t.Fatalf("kwokctl %s: %v\n%s", args, err, out)
		}
		return out
	}
	t.Cleanup(func() { _, _ = try("delete", "cluster") })
	run("create", "cluster", "--runtime", "binary", "--kube-apiserver-binary", filepath.Join(dir, "kube-apiserver"), "--etcd-binary", filepath.Join(dir, "etcd"),
		"--kwok-controller-binary", filepath.Join(programs, "kwok"), "--disable", "kube-controller-manager,kube-scheduler", "--wait", "1m")
	run("scale", "node", "--replicas", "2")
	ready := func() string {
		out, err := try("kubectl", "get", "nodes")
		if err != nil || strings.Count(out, " Ready ") != 2 {
			return out
		}
		return ""
	}
	cluster.Await(t, time.Minute, "two nodes are ready", ready)
	run("kubectl", "create", "configmap", "kept")
	run("stop", "cluster")
	if out, err := try("kubectl", "get", "nodes"); err == nil {
		t.Errorf("it answers after the stop:\n%s", out)
	}
	run("start", "cluster", "--wait", "1m")
	run("kubectl", "get", "configmap", "kept")
	cluster.Await(t, time.Minute, "two nodes are ready again", ready)
	run("delete", "cluster")
	if left, err := filepath.Glob(filepath.Join(dir, "work", "clusters", "*")); err != nil || len(left) > 0 {
		t.Errorf("%s is left, %v", left, err)
	}
	if n := len(processesWith(t, dir)); n > 0 {
		t.Errorf("%d processes are left", n)
	}
}

// processesWith are those with a text in their command line.
func processesWith(t *testing.T, text string) (out []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		if line, err := os.ReadFile(path); err == nil && strings.Contains(string(line), text) {
			out = append(out, string(line))
		}
	}
	return out
}
