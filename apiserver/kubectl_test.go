package apiserver_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/apiserver/backends/kubelet"
	"github.com/quorate/quorate/apiserver/catalog/discovery"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/internal/must"
	"k8s.io/apimachinery/pkg/version"
)

// TestKubectlStreams: kubectl logs, exec, attach, cp and port-forward, by WebSockets and by SPDY.
func TestKubectlStreams(t *testing.T) {
	kubectl, err := filepath.Abs("../bin/kubectl")
	if err == nil {
		_, err = os.Stat(kubectl)
	}
	if err != nil {
		t.Skip("there is no kubectl: make kubectl")
	}
	k := newFakeKubelet(t)
	host, port := k.address()
	e := withKubelets(t, kubelet.Config{}, host, port, func(c *apiserver.Config) {
		c.Discovery = discovery.New(func() *kinds.Registry { return c.Kinds() })
		c.Version = discovery.Version(version.Info{Major: "1", Minor: "36", GitVersion: "v1.36.3"})
	})
	if w, answer := e.do("PATCH", podsPath+"/p/status", map[string][]string{"Content-Type": {asMerge}}, `{"status":{"phase":"Running"}}`); w.StatusCode != 200 {
		t.Fatal(answer)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	must.OK(t, os.WriteFile(file, bytes.Repeat([]byte("content\n"), 100_000), 0o600))
	for _, sockets := range []string{"true", "false"} {
		command := func(in string, args ...string) *exec.Cmd {
			ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
			t.Cleanup(cancel)
			c := exec.CommandContext(ctx, kubectl, append([]string{"--server", e.url, "--insecure-skip-tls-verify", "--token", "any", "--cache-dir", dir}, args...)...)
			c.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(dir, "none"), "HOME="+dir, "KUBECTL_REMOTE_COMMAND_WEBSOCKETS="+sockets, "KUBECTL_PORT_FORWARD_WEBSOCKETS="+sockets)
			c.Stdin = strings.NewReader(in)
			return c
		}
		for _, r := range []struct {
			in, out string
			code    int
			args    []string
		}{
			{"", "a line\n", 0, []string{"logs", "p"}},
			{"", "a line\n", 0, []string{"logs", "-f", "p"}},
			{"", "a b", 0, []string{"exec", "p", "--", "echo", "a", "b"}},
			{"typed", "typed", 0, []string{"exec", "-i", "p", "-c", "c", "--", "cat"}},
			{"", "command terminated with exit code 7", 7, []string{"exec", "p", "--", "exit"}},
			{"typed", "typed", 0, []string{"attach", "-i", "p", "-c", "c", "-q"}},
			{"", "", 0, []string{"cp", file, "p:" + file + "." + sockets}},
			{"", "", 0, []string{"cp", "p:" + file + "." + sockets, file + ".back"}},
		} {
			c := command(r.in, r.args...)
			b, err := c.CombinedOutput()
			if c.ProcessState.ExitCode() != r.code || r.out != "" && !strings.Contains(string(b), r.out) {
				t.Errorf("kubectl %q: %v %s", r.args, err, b)
			}
		}
		want, _ := os.ReadFile(file)
		if got, err := os.ReadFile(file + ".back"); err != nil || !bytes.Equal(got, want) {
			t.Errorf("kubectl cp: %d of %d bytes came back, %v", len(got), len(want), err)
		}
		_ = os.Remove(file + ".back")

		c := command("", "port-forward", "p", ":8080")
		said, err := c.StdoutPipe()
		if err == nil {
			err = c.Start()
		}
		must.OK(t, err)
		b := make([]byte, 200)
		n, _ := said.Read(b)
		at := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(string(b[:n]))
		if got := forwarded(t, at); got != "8080 hello\n" {
			t.Errorf("kubectl port-forward, which said %q: %q", b[:n], got)
		}
		_ = c.Process.Kill()
		_ = c.Wait()
	}
}
