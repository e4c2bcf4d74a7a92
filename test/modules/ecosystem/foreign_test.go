package ecosystem

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/quorate/quorate/test/harness/cluster"
)

// foreign are programs of another project that run as processes of this machine for a
// cluster, each with a token of its service account.
type foreign struct {
	*turns
	whole *testing.T // at whose end the processes end
	dir   string     // of the cluster
}

// startForeign starts three nodes for such programs.
func startForeign(t *testing.T, settings ...string) *foreign {
	t.Helper()
	c := cluster.Start(t, 3, settings...)
	return &foreign{turns: &turns{c: c}, whole: t, dir: c.Dir}
}

// program is the path of a package of dir, built, or of the program that an environment
// variable names. It lies in a directory of the run, so that what is left of it is found.
func (f *foreign) program(t *testing.T, variable string, source func(*testing.T) (dir, pkg string)) string {
	t.Helper()
	path := filepath.Join(f.dir, strings.ToLower(variable))
	if built := os.Getenv(variable); built != "" {
		noError(t, os.Symlink(built, path))
		return path
	}
	dir, pkg := source(t)
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, pkg)
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s of %s: %v\n%s", pkg, dir, err, out)
	}
	return path
}

// credentials is the path of a kubeconfig with a token of a service account, for one
// node. more are flags of kubectl create token.
func (f *foreign) credentials(t *testing.T, namespace, account string, more ...string) string {
	t.Helper()
	n := f.node()
	token := strings.TrimSpace(f.kubectl(t, append([]string{"-n", namespace, "create", "token", account}, more...)...))
	file, err := os.CreateTemp(f.dir, account+"-*.kubeconfig")
	noError(t, err)
	_, err = fmt.Fprintf(file, `{apiVersion: v1, kind: Config, current-context: c,
clusters: [{name: c, cluster: {server: %q, certificate-authority: %q}}],
contexts: [{name: c, context: {cluster: c, user: u}}],
users: [{name: u, user: {token: %s}}]}`, n.API, f.c.CAFile, token)
	noError(t, err)
	noError(t, file.Close())
	return file.Name()
}

// run starts a process that ends with the whole test, and whose output goes to a file
// that is shown when the test failed.
func (f *foreign) run(t *testing.T, name string, cmd *exec.Cmd) {
	t.Helper()
	log, err := os.CreateTemp(f.dir, name+"-*.log")
	noError(t, err)
	cmd.Stdout, cmd.Stderr = log, log
	noError(t, cmd.Start())
	noError(t, log.Close())
	f.whole.Cleanup(func() {
		end(cmd)
		if out, err := os.ReadFile(log.Name()); f.whole.Failed() && err == nil {
			f.whole.Logf("%s:\n%s", name, tail(string(out), 3000))
		}
	})
}

// end ends a process as SIGKILL does. One that has ended stays so.
func end(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

func send(t *testing.T, cmd *exec.Cmd, s syscall.Signal) {
	t.Helper()
	noError(t, cmd.Process.Signal(s))
}
