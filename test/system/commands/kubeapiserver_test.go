package commands

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/quorate/quorate/test/harness/cluster"
	"github.com/quorate/quorate/test/harness/kubeapiserver"
	"golang.org/x/sys/unix"
)

// drop is a process of `quorate kube-apiserver` or `quorate etcd-stub`, started by a link of the other program's name.
type drop struct {
	cmd    *exec.Cmd
	url    string
	token  string
	client *http.Client
	out    *output
	ended  chan struct{}
}

// output is what a process has printed so far.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// call starts our program by another name. Its temporary files are below dir, and attr is what is
// special about the process.
func call(t *testing.T, name, dir string, attr *syscall.SysProcAttr, args ...string) *drop {
	t.Helper()
	link := filepath.Join(dir, name)
	if err := os.Symlink(cluster.Binary(), link); err != nil && !os.IsExist(err) {
		t.Fatal(err)
	}
	d := &drop{cmd: exec.Command(link, args...), out: &output{}, ended: make(chan struct{})}
	d.cmd.Env, d.cmd.SysProcAttr = cluster.CleanEnv("TMPDIR="+dir), attr
	d.cmd.Stdout, d.cmd.Stderr = d.out, d.out
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = d.cmd.Wait()
		close(d.ended)
	}()
	t.Cleanup(func() {
		_ = d.cmd.Process.Kill()
		<-d.ended
		if t.Failed() {
			t.Logf("%s %s:\n%s", name, args, d.out)
		}
	})
	return d
}

// end ends the process with a signal, and returns its exit code.
func (d *drop) end(t *testing.T, s syscall.Signal) int {
	t.Helper()
	if err := d.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
	return d.wait(t)
}

func (d *drop) wait(t *testing.T) int {
	t.Helper()
	select {
	case <-d.ended:
	case <-time.After(20 * time.Second):
		t.Fatal("it does not end")
	}
	return d.cmd.ProcessState.ExitCode()
}

// serve starts a server and waits until it is ready. Its user is an administrator, of a file of tokens.
func serve(t *testing.T, dir string, attr *syscall.SysProcAttr, args ...string) *drop {
	t.Helper()
	return serveAnd(t, dir, attr, func() {}, args...)
}

// serveAnd calls meanwhile before it waits.
func serveAnd(t *testing.T, dir string, attr *syscall.SysProcAttr, meanwhile func(), args ...string) *drop {
	t.Helper()
	tokens := filepath.Join(dir, "tokens.csv")
	if err := os.WriteFile(tokens, []byte("admin-token,admin,1,\"system:masters\"\nguest-token,guest,2,\"guests, others\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	port := freePort(t)
	d := call(t, "kube-apiserver", dir, attr, append([]string{
		"--bind-address=127.0.0.1", "--secure-port=" + port, "--token-auth-file=" + tokens,
	}, args...)...)
	d.url, d.token = "https://127.0.0.1:"+port, "admin-token"
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	d.client = &http.Client{Timeout: 10 * time.Second, Transport: transport}
	t.Cleanup(transport.CloseIdleConnections)
	meanwhile()
	cluster.Await(t, 30*time.Second, "the server is ready", func() string {
		select {
		case <-d.ended:
			t.Fatalf("it has ended:\n%s", d.out)
		default:
		}
		if code, text := d.do(t, http.MethodGet, "/readyz", ""); code != http.StatusOK {
			return text
		}
		return ""
	})
	return d
}

// do sends a request; 0 is no answer.
func (d *drop) do(t *testing.T, method, path, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequest(method, d.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+d.token)
	w, err := d.client.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer w.Body.Close()
	text, err := io.ReadAll(w.Body)
	if err != nil {
		return 0, err.Error()
	}
	return w.StatusCode, string(text)
}

func (d *drop) must(t *testing.T, want int, method, path, body string) string {
	t.Helper()
	code, text := d.do(t, method, path, body)
	if code != want {
		t.Fatalf("%s %s: %d %s, want %d", method, path, code, text, want)
	}
	return text
}

// freePort is a port that the kernel gives to no connection before a server listens there, also
// one that is started again.
func freePort(t *testing.T) string {
	t.Helper()
	port, err := cluster.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(port)
}

const dropMap = "/api/v1/namespaces/default/configmaps"

// temporary are the directories that servers have for their data below dir.
func temporary(t *testing.T, dir string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "quorate-kube-apiserver-*"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestKubeAPIServerThree: three nodes in one process, behind one port, and nothing of them when it has ended.
func TestKubeAPIServerThree(t *testing.T) {
	dir := t.TempDir()
	d := serve(t, dir, nil, "--quorate-nodes=3")
	var members struct{ Members []struct{ Name, Role string } }
	if err := json.Unmarshal([]byte(d.must(t, http.StatusOK, http.MethodGet, "/quorate/v1/members", "")), &members); err != nil || len(members.Members) != 3 {
		t.Errorf("%v, %v", members, err)
	}
	d.must(t, http.StatusCreated, http.MethodPost, dropMap, `{"metadata":{"name":"a"}}`)
	if len(temporary(t, dir)) != 1 {
		t.Errorf("it keeps its data in %s: this test looks in the wrong place", temporary(t, dir))
	}
	if code := d.end(t, syscall.SIGTERM); code != 0 {
		t.Errorf("exit %d", code)
	}
	if left := temporary(t, dir); len(left) > 0 {
		t.Errorf("%s is left", left)
	}
}

// TestKubeAPIServerUsers: users of a file of tokens are who it says, AlwaysAllow allows them everything
// but nobody without a credential, and /version says what it was told.
func TestKubeAPIServerUsers(t *testing.T) {
	d := serve(t, t.TempDir(), nil, "--authorization-mode=RBAC")
	d.token = "guest-token"
	d.must(t, http.StatusForbidden, http.MethodPost, dropMap, `{"metadata":{"name":"a"}}`)
	who := d.must(t, http.StatusCreated, http.MethodPost, "/apis/authentication.k8s.io/v1/selfsubjectreviews", `{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}`)
	if !strings.Contains(who, `"userInfo":{"groups":["guests","others","system:authenticated"],"uid":"2","username":"guest"}`) {
		t.Errorf("the guest is %s", who)
	}
	d.token = "another"
	d.must(t, http.StatusUnauthorized, http.MethodGet, dropMap, "")

	d = serve(t, t.TempDir(), nil, "--authorization-mode=RBAC,AlwaysAllow", "--version=v1.36.3-custom")
	d.token = "guest-token"
	d.must(t, http.StatusCreated, http.MethodPost, dropMap, `{"metadata":{"name":"a"}}`)
	if v := d.must(t, http.StatusOK, http.MethodGet, "/version", ""); !strings.Contains(v, `"gitVersion": "v1.36.3-custom"`) {
		t.Errorf("the version is %s", v)
	}
	d.token = ""
	d.must(t, http.StatusUnauthorized, http.MethodGet, "/version", "")
}

// TestKubeAPIServerTokens: service account tokens are signed by the key that was given, RSA as kubeadm
// makes it, and others find it where they verify them.
func TestKubeAPIServerTokens(t *testing.T) {
	dir := t.TempDir()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"sa.key": {Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}, "sa.pub": {Type: "PUBLIC KEY", Bytes: public},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d := serve(t, dir, nil, "--service-account-key-file="+filepath.Join(dir, "sa.pub"), "--service-account-signing-key-file="+filepath.Join(dir, "sa.key"),
		"--service-account-issuer=https://issuer.example.com")
	d.must(t, http.StatusCreated, http.MethodPost, "/api/v1/namespaces/default/serviceaccounts", `{"metadata":{"name":"robot"}}`)
	var granted struct{ Status struct{ Token string } }
	text := d.must(t, http.StatusCreated, http.MethodPost, "/api/v1/namespaces/default/serviceaccounts/robot/token", `{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","spec":{}}`)
	if err := json.Unmarshal([]byte(text), &granted); err != nil {
		t.Fatal(err)
	}
	keys := d.must(t, http.StatusOK, http.MethodGet, "/openid/v1/jwks", "")
	if strings.Count(keys, `"kid"`) != 1 || !strings.Contains(keys, `"alg":"RS256"`) {
		t.Errorf("the keys are %s", keys)
	}
	if c := d.must(t, http.StatusOK, http.MethodGet, "/.well-known/openid-configuration", ""); !strings.Contains(c, `"id_token_signing_alg_values_supported":["RS256"]`) {
		t.Errorf("the configuration is %s", c)
	}
	d.token = granted.Status.Token
	who := d.must(t, http.StatusCreated, http.MethodPost, "/apis/authentication.k8s.io/v1/selfsubjectreviews", `{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}`)
	if !strings.Contains(who, `"username":"system:serviceaccount:default:robot"`) {
		t.Errorf("the token is of %s", who)
	}
}

// TestKubeAPIServerOutlives: a server that leads a session, as a daemon does, starts only where its data is kept: in a
// directory that it was given, or in that of a stub of etcd. There it finds it when it is started again.
func TestKubeAPIServerOutlives(t *testing.T) {
	daemon := &syscall.SysProcAttr{Setsid: true}
	d := call(t, "kube-apiserver", t.TempDir(), daemon, "--secure-port="+freePort(t))
	if code := d.wait(t); code != 1 || !strings.Contains(d.out.String(), "where is the data to be?") {
		t.Errorf("exit %d\n%s", code, d.out)
	}
	for _, kept := range []string{"--quorate-data-dir", "--etcd-servers"} {
		t.Run(kept, func(t *testing.T) {
			dir := t.TempDir()
			flag := kept + "=" + filepath.Join(dir, "data")
			startStub := func() {}
			if kept == "--etcd-servers" {
				url := "http://127.0.0.1:" + freePort(t)
				startStub = func() {
					// The first server asks for it already: nothing is there yet.
					//sleep: the server must find nothing at first
					time.Sleep(300 * time.Millisecond)
					call(t, "etcd", dir, daemon, "--data-dir="+filepath.Join(dir, "etcd-data"), "--listen-client-urls="+url, "--name=node0", "--initial-cluster", "node0=http://127.0.0.1:1")
					await(t, url+"/health", `{"health":"true"`)
					await(t, url+"/version", `"etcdserver":"3.6.`)
					await(t, url+"/v3/kv/range", "this is no etcd but a stub")
				}
				flag = kept + "=" + url
			}
			for i := range 2 {
				d := serveAnd(t, dir, daemon, startStub, flag)
				startStub = func() {}
				if i == 0 {
					d.must(t, http.StatusCreated, http.MethodPost, dropMap, `{"metadata":{"name":"kept"}}`)
				} else {
					d.must(t, http.StatusOK, http.MethodGet, dropMap+"/kept", "")
				}
				signal := []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM}[i]
				d.end(t, signal)
			}
			if left := temporary(t, dir); len(left) > 0 {
				t.Errorf("%s is left", left)
			}
		})
	}
}

// await waits for a text in what a URL answers.
func await(t *testing.T, url, want string) {
	t.Helper()
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	cluster.Await(t, 20*time.Second, url, func() string {
		w, err := client.Get(url)
		if err != nil {
			return err.Error()
		}
		defer w.Body.Close()
		text, err := io.ReadAll(w.Body)
		if err != nil || !strings.Contains(string(text), want) {
			return fmt.Sprintf("%s, %v", text, err)
		}
		return ""
	})
}

// TestKubeAPIServerSwept: what a server leaves that is killed itself, the next one removes, and nothing
// of one that runs.
func TestKubeAPIServerSwept(t *testing.T) {
	dir := t.TempDir()
	runs, dead := serve(t, dir, nil), serve(t, dir, nil)
	dead.end(t, syscall.SIGKILL)
	old := time.Now().Add(-time.Hour)
	for _, left := range temporary(t, dir) {
		if err := os.Chtimes(left, old, old); err != nil {
			t.Fatal(err)
		}
	}
	serve(t, dir, nil)
	if n := len(temporary(t, dir)); n != 2 {
		t.Errorf("%d directories, want those of the two servers that run", n)
	}
	runs.must(t, http.StatusCreated, http.MethodPost, dropMap, `{"metadata":{"name":"a"}}`)
}

// TestKubeAPIServerRefuses: a flag that would mislead keeps the server from starting, and the reason is
// what it prints last.
func TestKubeAPIServerRefuses(t *testing.T) {
	d := call(t, "kube-apiserver", t.TempDir(), nil, "--allow-privileged", "--encryption-provider-config=x", "--oidc-client-id=y")
	if code := d.wait(t); code != 1 || !strings.HasSuffix(d.out.String(), `error: --encryption-provider-config=x: Secrets would be on disk in clear: the data directory is not encrypted
--oidc-client-id=y: no OpenID Connect: its users could not log in
`) || !strings.Contains(d.out.String(), "--allow-privileged changes nothing") {
		t.Errorf("exit %d\n%s", code, d.out)
	}
}

// TestKubeAPIServerControllers: without controllers the server leaves to others what
// kube-controller-manager does, and is ready nonetheless. Those of a cluster would finalize the
// namespace, and make an account in each.
func TestKubeAPIServerControllers(t *testing.T) {
	for _, x := range []struct {
		args []string
		want bool // that controllers run
	}{{nil, true}, {[]string{"--quorate-controllers=none"}, false}} {
		t.Run(strings.Join(x.args, ""), func(t *testing.T) {
			d := serve(t, t.TempDir(), nil, x.args...)
			d.must(t, http.StatusCreated, http.MethodPost, "/api/v1/namespaces", `{"metadata":{"name":"empty"}}`)
			d.must(t, http.StatusOK, http.MethodDelete, "/api/v1/namespaces/empty", "")
			d.must(t, http.StatusCreated, http.MethodPost, "/api/v1/namespaces", `{"metadata":{"name":"full"}}`)
			if x.want {
				d.until(t, http.StatusOK, "/api/v1/namespaces/full/serviceaccounts/default")
				d.until(t, http.StatusNotFound, "/api/v1/namespaces/empty")
				return
			}
			// kube-apiserver's own: the Service kubernetes has an endpoint.
			d.until(t, http.StatusOK, "/api/v1/namespaces/default/endpoints/kubernetes")
			if text := d.must(t, http.StatusOK, http.MethodGet, "/api/v1/namespaces/empty", ""); !strings.Contains(text, `"phase":"Terminating"`) {
				t.Errorf("the namespace is %s", text)
			}
			if text := d.must(t, http.StatusOK, http.MethodGet, "/api/v1/serviceaccounts", ""); strings.Contains(text, `"name":"default"`) {
				t.Errorf("service accounts: %s", text)
			}
		})
	}
}

// until waits for an answer to GET.
func (d *drop) until(t *testing.T, want int, path string) {
	t.Helper()
	cluster.Await(t, 20*time.Second, fmt.Sprintf("%d to GET %s", want, path), func() string {
		if code, text := d.do(t, http.MethodGet, path, ""); code != want {
			return text
		}
		return ""
	})
}

// TestKubeAPIServerKubeadm: the server starts with the flags of kubeadm's manifest, and serves the
// certificate and knows the users of kubeadm's authority.
func TestKubeAPIServerKubeadm(t *testing.T) {
	dir := t.TempDir()
	lines, err := os.ReadFile("../../../internal/kubeapiserver/testdata/lines.txt")
	if err != nil {
		t.Fatal(err)
	}
	_, of, ok := strings.Cut(string(lines), "# kubeadm 1.36.3\n$ ")
	line, _, _ := strings.Cut(of, "\n")
	if !ok || !strings.Contains(line, "--etcd-certfile=") {
		t.Fatalf("the flags of kubeadm are not there: %q", line)
	}
	authority, err := kubeapiserver.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, text []byte) {
		t.Helper()
		path := filepath.Join(dir, "pki", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	signed := func(c tls.Certificate, err error) (cert, keyPEM []byte) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	write("sa.key", pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
	write("sa.pub", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}))
	for _, name := range []string{"ca", "etcd/ca", "front-proxy-ca"} {
		write(name+".crt", authority.PEM())
	}
	for _, name := range []string{"apiserver", "apiserver-etcd-client", "apiserver-kubelet-client", "front-proxy-client"} {
		cert, keyPEM := signed(authority.ServerCertificate())
		write(name+".crt", cert)
		write(name+".key", keyPEM)
	}
	port := freePort(t)
	line = strings.NewReplacer("/etc/kubernetes/pki", filepath.Join(dir, "pki"), "--secure-port=6443", "--secure-port="+port, "127.0.0.1:2379", "127.0.0.1:1").Replace(line)
	d := call(t, "kube-apiserver", dir, nil, strings.Fields(line)...)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority.PEM())
	admin, err := authority.ClientCertificate("kubernetes-admin", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{admin}}}
	t.Cleanup(transport.CloseIdleConnections)
	d.url, d.client = "https://127.0.0.1:"+port, &http.Client{Timeout: 10 * time.Second, Transport: transport}
	for _, path := range []string{"/livez", "/readyz", "/healthz"} { // what kubeadm's probes ask
		cluster.Await(t, 30*time.Second, path, func() string {
			if code, text := d.do(t, http.MethodGet, path, ""); code != http.StatusOK {
				return text
			}
			return ""
		})
	}
	who := d.must(t, http.StatusCreated, http.MethodPost, "/apis/authentication.k8s.io/v1/selfsubjectreviews", `{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}`)
	if !strings.Contains(who, `"username":"kubernetes-admin"`) {
		t.Errorf("the administrator is %s", who)
	}
	cluster.Await(t, 20*time.Second, "the address that others are told", func() string {
		_, text := d.do(t, http.MethodGet, "/api/v1/namespaces/default/endpoints/kubernetes", "")
		if !strings.Contains(text, `"ip":"192.0.2.1"`) {
			return text
		}
		return ""
	})
}

// TestKubeAPIServerOrphan: server and stub end at once, and leave nothing, if the process that has started them was
// gone before their first line ran: then their parent is init or a subreaper, which is never gone.
func TestKubeAPIServerOrphan(t *testing.T) {
	for _, subreaper := range []int{0, 1} {
		for _, name := range []string{"etcd", "kube-apiserver"} {
			t.Run(fmt.Sprint(name, subreaper), func(t *testing.T) {
				dir := t.TempDir()
				if err := os.Symlink(cluster.Binary(), filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
				if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, uintptr(subreaper), 0, 0, 0); err != nil {
					t.Fatal(err)
				}
				defer func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) }()
				args := "--data-dir=$TMPDIR/data --listen-client-urls=http://127.0.0.1:" + freePort(t)
				if name == "kube-apiserver" {
					args = "--bind-address=127.0.0.1 --secure-port=" + freePort(t)
				}
				// The shell leads a session and ends at once; what it leaves becomes our program a little later.
				cmd := exec.Command("sh", "-c", "(sleep 0.3; exec $TMPDIR/"+name+" "+args+") & echo $!")
				cmd.Env, cmd.SysProcAttr = cluster.CleanEnv("TMPDIR="+dir), &syscall.SysProcAttr{Setsid: true}
				out, in, err := os.Pipe()
				if err != nil {
					t.Fatal(err)
				}
				defer out.Close()
				cmd.Stdout, cmd.Stderr = in, in
				err = cmd.Run()
				in.Close()
				if err != nil {
					t.Fatal(err)
				}
				// The pipe ends with the last process that has it.
				if err := out.SetReadDeadline(time.Now().Add(15 * time.Second)); err != nil {
					t.Fatal(err)
				}
				text, err := io.ReadAll(out)
				pid, _, _ := strings.Cut(string(text), "\n")
				if n, failed := strconv.Atoi(pid); failed != nil {
					t.Fatalf("no pid: %q", text)
				} else if err != nil {
					_ = syscall.Kill(n, syscall.SIGKILL)
					t.Errorf("it runs still: %v", err)
				} else if subreaper == 1 {
					_, _ = syscall.Wait4(n, nil, 0, nil)
				}
				if !strings.Contains(string(text), "the process that started this one is gone") {
					t.Errorf("it says %q", text)
				}
				files, err := os.ReadDir(dir)
				if err != nil || len(files) != 1 {
					t.Errorf("it leaves %v, %v", files, err)
				}
			})
		}
	}
}

// TestParentEarly: the parent is asked for before the packages of Kubernetes are initialized, which takes a
// tenth of a second and more.
func TestParentEarly(t *testing.T) {
	cmd := exec.Command(cluster.Binary(), "version")
	cmd.Env = cluster.CleanEnv("GODEBUG=inittrace=1")
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	ours := strings.Index(string(text), "init github.com/quorate/quorate/internal/parent ")
	theirs := strings.Index(string(text), "init k8s.io/")
	if ours < 0 || theirs < 0 || ours > theirs {
		t.Errorf("ours is at %d, the first of theirs at %d:\n%s", ours, theirs, text)
	}
}
