//go:build linux

package nodes

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// testStreams is what kubectl does through Quorate with what runs on a worker, by each node.
func testStreams(t *testing.T, s *Site, on *worker) {
	ns := s.namespace(t)
	there := "nodeName: " + on.name
	s.apply(t, ns, podManifest("speaks", []string{container("speaks", "i=0; while true; do echo line $i; i=$((i+1)); sleep 0.1; done")}, there))
	s.apply(t, ns, podManifest("web", []string{serving()}, there))
	s.apply(t, ns, "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}\n")
	s.awaitReady(t, ns, "app=speaks", 1)
	s.awaitReady(t, ns, "app=web", 1)
	for _, m := range s.control {
		by := []string{"--server", "https://" + m.ip + ":6443", "-n", ns}
		k := func(args ...string) []string { return append(append([]string{}, by...), args...) }
		if out := s.kubectl(t, k("logs", "speaks", "-c", "speaks", "--tail=-1")...); !strings.HasPrefix(out, "line 0\nline 1\n") {
			t.Errorf("logs by %s: %q", m.name, out)
		}
		s.follow(t, "line ", k("logs", "-f", "--tail=2", "speaks", "-c", "speaks"), 10)
		out, err := s.tryKubectl(t, "hello", k("exec", "-i", "speaks", "-c", "speaks", "--", "sh", "-c", "cat; echo to err >&2; exit 3")...)
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 3 || !strings.Contains(out, "hello") || !strings.Contains(out, "to err") {
			t.Errorf("exec by %s: %v, %q", m.name, err, out)
		}
		s.terminal(t, k("exec", "-it", "speaks", "-c", "speaks", "--", "sh", "-c", "tty; until stty size | grep 31; do sleep 0.1; done"))
		s.copyBothWays(t, m.name, k())
		s.portForward(t, "pod/web", "8080", k())
		s.portForward(t, "service/web", "80", k())
		for path, want := range map[string]string{
			"/api/v1/nodes/" + on.name + "/proxy/healthz":            "ok",
			"/api/v1/namespaces/" + ns + "/pods/web:8080/proxy/":     "web\n",
			"/api/v1/namespaces/" + ns + "/services/web:80/proxy/":   "web\n",
			"/api/v1/namespaces/" + ns + "/pods/web/log?tailLines=1": "serving as web\n",
		} {
			if out := s.kubectl(t, k("get", "--raw", path)...); out != want {
				t.Errorf("%s by %s: %q", path, m.name, out)
			}
		}
		name := "reads-" + m.name
		s.apply(t, ns, podManifest(name, []string{container("reads", "read line; echo got $line; echo has $line > /dev/termination-log", "stdin: true")}, "restartPolicy: Never", there))
		s.awaitReady(t, ns, "app="+name, 1)
		if out, err := s.converse(t, "ping\n", k("attach", "-i", name)); err != nil || !strings.Contains(out, "got ping") {
			t.Errorf("attach by %s: %v, %q", m.name, err, out)
		}
		if got := s.message(t, ns, name); got != "has ping\n" {
			t.Errorf("attach by %s: the container has %q", m.name, got)
		}
		debug := k("debug", "speaks", "-i", "--image="+toolsImage, "--image-pull-policy=Never", "--profile=general",
			"-c", "doctor-"+m.name, "--", "sh", "-c", "read line; echo here is $line")
		if out, err := s.converse(t, "pong\n", debug); err != nil || !strings.Contains(out, "here is pong") {
			t.Errorf("debug by %s: %v, %q", m.name, err, out)
		}
	}
}

// converse runs kubectl with an input that does not end: where it ends, attach does too unless
// the container says stdinOnce.
func (s *Site) converse(t *testing.T, stdin string, args []string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), cluster.CommandWithin)
	defer cancel()
	from, to, err := os.Pipe()
	must.OK(t, err)
	defer from.Close()
	defer to.Close()
	if _, err := to.WriteString(stdin); err != nil {
		t.Fatal(err)
	}
	cmd := s.kubectlCommand(ctx, args...)
	cmd.Stdin = from
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// background starts kubectl, and ends it with the test or by end.
func (s *Site) background(t *testing.T, args []string) (out *output, end func()) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	cmd := s.kubectlCommand(ctx, args...)
	out = &output{}
	cmd.Stdout, cmd.Stderr = out, out
	must.OK(t, cmd.Start())
	end = sync.OnceFunc(func() { stop(); _ = cmd.Wait() })
	t.Cleanup(end)
	return out, end
}

// output is what a command has printed so far.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// follow awaits some lines of what goes on until kubectl is ended.
func (s *Site) follow(t *testing.T, line string, args []string, lines int) {
	t.Helper()
	out, end := s.background(t, args)
	defer end()
	s.awaitFor(t, podsWithin, fmt.Sprintf("%d lines of kubectl %s", lines, strings.Join(args, " ")), func() string {
		if strings.Count(out.String(), line) < lines {
			return "so far: " + out.String()
		}
		return ""
	})
}

// terminal runs kubectl on a terminal of 31 rows and 97 columns, which the container must see.
func (s *Site) terminal(t *testing.T, args []string) {
	t.Helper()
	path, err := exec.LookPath("script")
	if err != nil {
		t.Log("no terminal: ", err)
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), cluster.CommandWithin)
	defer cancel()
	kubectl := s.kubectlCommand(ctx, args...)
	words := make([]string, len(kubectl.Args))
	for i, w := range kubectl.Args {
		words[i] = "'" + w + "'"
	}
	cmd := exec.CommandContext(ctx, path, "-qec", "stty rows 31 cols 97; "+strings.Join(words, " "), "/dev/null")
	cmd.Env = kubectl.Env
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "/dev/pts/0") || !strings.Contains(string(out), "31 97") {
		t.Errorf("on a terminal: %v, %q", err, out)
	}
}

func (s *Site) copyBothWays(t *testing.T, name string, by []string) {
	t.Helper()
	sent := make([]byte, 1<<20)
	_, _ = rand.Read(sent)
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "sent"), sent)
	s.kubectl(t, append(by, "cp", "-c", "speaks", filepath.Join(dir, "sent"), "speaks:/tmp/"+name)...)
	s.kubectl(t, append(by, "cp", "-c", "speaks", "speaks:/tmp/"+name, filepath.Join(dir, "back"))...)
	back, err := os.ReadFile(filepath.Join(dir, "back"))
	if err != nil || !bytes.Equal(sent, back) {
		t.Errorf("cp by %s: %d bytes came back, %v", name, len(back), err)
	}
}

var forwarding = regexp.MustCompile(`127\.0\.0\.1:(\d+) -> `)

func (s *Site) portForward(t *testing.T, to, port string, by []string) {
	t.Helper()
	out, end := s.background(t, append(by, "port-forward", to, ":"+port))
	defer end()
	var local string
	s.awaitFor(t, podsWithin, "port-forward to "+to, func() string {
		found := forwarding.FindStringSubmatch(out.String())
		if found == nil {
			return "so far: " + out.String()
		}
		local = found[1]
		return ""
	})
	for range 3 {
		if body, err := get(t.Context(), fmt.Sprintf("http://127.0.0.1:%s/", local)); err != nil || body != "web" {
			t.Errorf("through port-forward to %s: %v, %q, %s", to, err, body, out.String())
		}
	}
}
