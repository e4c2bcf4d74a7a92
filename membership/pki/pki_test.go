package pki

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
)

const (
	secretA = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	secretB = "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210"
	nodeID  = "00112233445566778899aabbccddeeff"
)

func secrets(t *testing.T, lines ...string) []Secret {
	t.Helper()
	s, err := ParseSecrets(strings.Join(lines, "\n"))
	must.OK(t, err)
	return s
}

func open(t *testing.T, opt Options) *Node {
	t.Helper()
	if opt.Dir == "" {
		opt.Dir = filepath.Join(t.TempDir(), "pki")
	}
	if opt.NodeID == "" {
		opt.NodeID = nodeID
	}
	n, err := Open(opt)
	must.OK(t, err)
	return n
}

// The derived keys are those of every cluster that exists: these values must
// never change.
func TestDerivationIsFixed(t *testing.T) {
	a, err := derive(secrets(t, secretA)[0])
	must.OK(t, err)
	b, _ := derive(secrets(t, secretA)[0])
	if !bytes.Equal(a.api.cert.Raw, b.api.cert.Raw) || !bytes.Equal(a.peer.cert.Raw, b.peer.cert.Raw) {
		t.Error("two derivations give different certificates")
	}
	for _, c := range []struct{ what, got, want string }{
		{"api", a.api.Pin(), "cY6PWkI_dXcED5n9Aufu3RWHLRhObBbMnbh7UmHQJms"},
		{"peer", a.peer.Pin(), "l9PfAWbD_B4LZDJQiSDzFI1KNOd_XmPADdfxsSPoWWI"},
		{"front proxy", a.proxy.Pin(), "uBinOdQNMEbnyA7PsUXmc5slfgtKDdldPKihLKXBYg0"},
		{"api subject", a.api.cert.Subject.String(), "CN=Quorate API CA 718e8f5a,O=quorate"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s, want %s", c.what, c.got, c.want)
		}
	}
	other, _ := derive(secrets(t, secretB)[0])
	pins := map[string]bool{a.api.Pin(): true, a.peer.Pin(): true, a.proxy.Pin(): true, other.api.Pin(): true, other.peer.Pin(): true, other.proxy.Pin(): true}
	if len(pins) != 6 {
		t.Error("keys are shared between CAs or secrets")
	}
	if err := a.api.cert.CheckSignatureFrom(a.api.cert); err != nil {
		t.Error(err)
	}
}

func TestParseSecrets(t *testing.T) {
	for _, c := range []struct {
		name, text string
		n          int
	}{
		{"one", secretA, 1},
		{"comment, spaces, newline", "# a\n\n  " + secretA + " \r\n", 1},
		{"two", secretA + "\n" + secretB, 2},
		{"base64", "AbCdEfGhIjKlMnOpQrStUvWxYz01234+/==", 1},
		{"empty", "", 0},
		{"only comments", "# x\n", 0},
		{"short", "0123456789abcdef", 0},
		{"repeats", strings.Repeat("ab", 40), 0},
		{"space inside", "0123456789abcdef 0123456789abcdef", 0},
		{"control", secretA + "\x00", 0},
		{"twice", secretA + "\n" + secretA, 0},
		{"too many", secretA + "\n" + secretB + "\n" + secretA + "1\n" + secretA + "2\n" + secretA + "3", 0},
		{"huge", strings.Repeat(secretA+"\n", 100), 0},
	} {
		got, err := ParseSecrets(c.text)
		if len(got) != c.n || (err == nil) != (c.n > 0) || (err != nil && !errors.Is(err, ErrSecret)) {
			t.Errorf("%s: %d secrets, error %v; want %d", c.name, len(got), err, c.n)
		}
	}
}

// TestGuessable: 256 bits have a form, which passphrases do not.
func TestGuessable(t *testing.T) {
	for text, want := range map[string]bool{
		secretA: false,
		"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08":                      false, // openssl rand -hex 32
		"9F86D081884C7D659A2FEAA0C55AD015A3BF4F1B2B0B822CD15D6C15B0F00A08":                      false,
		"n4bQgYhMfWWaL+qgxVrQFaO/TxsrC4Is0V1sFbDwCgg=":                                          false, // openssl rand -base64 32
		"n4bQgYhMfWWaL-qgxVrQFaO_TxsrC4Is0V1sFbDwCgg":                                           false,
		"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a0":                       true, // a digit less
		"9f86d081884c7d659a2feaa0c55ad015":                                                      true, // 128 bits
		"n4bQgYhMfWWaL+qgxVrQFaO/TxsrC4Is0V1sFbDwCg==":                                          true,
		"correct-horse-battery-staple-correct-horse-battery-staple-again":                       true,
		"Correct-Horse.Battery-Staple.Correct-Horse.Battery-Staple.Again":                       true,
		"hunter42hunter42hunter42hunter42hunter42hunter42hunter42hunter42":                      true,
		"0123456789012345678901234567890123456789-0123456789012345678901234567890123456789abcd": true,
	} {
		if got := secrets(t, text)[0].Guessable(); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
	for range 10_000 {
		if s := NewSecret(); s.Guessable() {
			t.Fatalf("a new one, %q", s.Reveal())
		}
	}
}

func FuzzParseSecrets(f *testing.F) {
	f.Add(secretA)
	f.Add("# x\n" + secretA + "\n" + secretB)
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ParseSecrets(text)
		if (err == nil) != (len(got) > 0) {
			t.Fatalf("%d secrets and error %v", len(got), err)
		}
		for _, s := range got {
			if len(s.Reveal()) < minSecretChars || strings.ContainsAny(s.Reveal(), " \n#") {
				t.Fatalf("accepted %q", s.Reveal())
			}
		}
	})
}

func TestSecretDoesNotPrint(t *testing.T) {
	s := secrets(t, secretA)[0]
	if strings.Contains(s.String()+s.GoString(), secretA) {
		t.Error("a secret prints itself")
	}
}

func TestSecretFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	var wg sync.WaitGroup
	got := make([]string, 8)
	made := make([]bool, 8)
	for i := range got {
		wg.Go(func() {
			s, created, err := LoadOrCreateSecrets(path)
			if err != nil {
				t.Error(err)
				return
			}
			got[i], made[i] = s[0].Reveal(), created
		})
	}
	wg.Wait()
	n := 0
	for i := range got {
		if got[i] != got[0] {
			t.Fatal("two callers have different secrets")
		}
		if made[i] {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d callers made the secret", n)
	}
	must.OK(t, os.Chmod(path, 0o644))
	if _, err := LoadSecrets(path); !errors.Is(err, ErrSecret) {
		t.Errorf("a secret that everyone can read: %v", err)
	}
}

// TestKubeletCertificate: it is a client's, of one user and no group, and names its node.
func TestKubeletCertificate(t *testing.T) {
	n, err := Open(Options{Dir: t.TempDir(), Secrets: secrets(t, secretA), NodeID: nodeID})
	must.OK(t, err)
	leaf := n.KubeletCertificate().Leaf
	if leaf.Subject.CommonName != KubeletUser || len(leaf.Subject.Organization) != 0 || !slices.Equal(NodesOf(leaf), []proto.NodeID{nodeID}) {
		t.Errorf("%s of %v", leaf.Subject, NodesOf(leaf))
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: n.APIRoots(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: n.APIRoots(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err == nil {
		t.Error("it can serve")
	}
}

func TestModesDoNotDependOnUmask(t *testing.T) {
	for _, mask := range []int{0, 0o077, 0o777} {
		dir := filepath.Join(t.TempDir(), "pki")
		if err := os.Mkdir(dir, 0o755); err != nil { // as if someone had made it
			t.Fatal(err)
		}
		old := syscall.Umask(mask)
		_, err := Open(Options{Dir: dir, Secrets: secrets(t, secretA), NodeID: nodeID})
		syscall.Umask(old)
		if err != nil {
			t.Fatalf("umask %03o: %v", mask, err)
		}
		if st, _ := os.Stat(dir); st.Mode().Perm() != ModeDir {
			t.Errorf("umask %03o: directory %v", mask, st.Mode())
		}
		files, err := os.ReadDir(dir)
		if err != nil || len(files) != 14 {
			t.Fatalf("umask %03o: %d files, %v", mask, len(files), err)
		}
		for _, f := range files {
			want := ModePublic
			if strings.HasSuffix(f.Name(), ".key") {
				want = ModeSecret
			}
			if st, _ := f.Info(); st.Mode() != want {
				t.Errorf("umask %03o: %s has %v, want %v", mask, f.Name(), st.Mode(), want)
			}
		}
	}
}

func TestLeaves(t *testing.T) {
	n := open(t, Options{Secrets: secrets(t, secretA), Name: "n1", Hosts: []string{"api.example.org", "10.0.0.1", "::", "bad host", "localhost", "-x"}})
	serving, _ := n.ServingCertificate(nil)
	for _, host := range []string{"localhost", "127.0.0.1", "::1", "n1", "api.example.org", "10.0.0.1", "kubernetes", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"} {
		if _, err := serving.Leaf.Verify(x509.VerifyOptions{Roots: n.APIRoots(), DNSName: host}); err != nil {
			t.Errorf("serving certificate for %s: %v", host, err)
		}
	}
	proxyRoots := x509.NewCertPool()
	proxyRoots.AppendCertsFromPEM(n.ProxyCAs())
	for _, c := range []struct {
		name  string
		cert  *tls.Certificate
		roots *x509.CertPool
		usage x509.ExtKeyUsage
		ok    bool
	}{
		{"peer as peer server", n.Certificate(), n.Roots(), x509.ExtKeyUsageServerAuth, true},
		{"peer as peer client", n.Certificate(), n.Roots(), x509.ExtKeyUsageClientAuth, true},
		{"peer as API client", n.Certificate(), n.APIRoots(), x509.ExtKeyUsageClientAuth, false},
		{"admin as API client", n.AdminCertificate(), n.APIRoots(), x509.ExtKeyUsageClientAuth, true},
		{"admin as peer", n.AdminCertificate(), n.Roots(), x509.ExtKeyUsageClientAuth, false},
		{"admin as server", n.AdminCertificate(), n.APIRoots(), x509.ExtKeyUsageServerAuth, false},
		{"front proxy", n.ProxyCertificate(), proxyRoots, x509.ExtKeyUsageClientAuth, true},
		{"front proxy as server", n.ProxyCertificate(), proxyRoots, x509.ExtKeyUsageServerAuth, false},
		{"front proxy as API client", n.ProxyCertificate(), n.APIRoots(), x509.ExtKeyUsageClientAuth, false},
		{"front proxy as peer", n.ProxyCertificate(), n.Roots(), x509.ExtKeyUsageClientAuth, false},
		{"admin as front proxy", n.AdminCertificate(), proxyRoots, x509.ExtKeyUsageClientAuth, false},
		{"server as client", serving, n.APIRoots(), x509.ExtKeyUsageClientAuth, false},
		{"server as peer", serving, n.Roots(), x509.ExtKeyUsageServerAuth, false},
	} {
		_, err := c.cert.Leaf.Verify(x509.VerifyOptions{Roots: c.roots, KeyUsages: []x509.ExtKeyUsage{c.usage}})
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if got := n.Certificate().Leaf.URIs; len(got) != 1 || got[0].String() != "quorate://peer/"+nodeID {
		t.Errorf("peer names %v", got)
	}
	if s := n.AdminCertificate().Leaf.Subject; s.CommonName != "quorate-admin" || s.Organization[0] != "system:masters" {
		t.Errorf("admin subject %v", s)
	}
}

// Two nodes with one secret trust each other; one with another secret is out.
func TestTrust(t *testing.T) {
	a, b := open(t, Options{Secrets: secrets(t, secretA)}), open(t, Options{Secrets: secrets(t, secretA), NodeID: "ff"})
	stranger := open(t, Options{Secrets: secrets(t, secretB)})
	// While a cluster changes its secret, some sign with the new one already.
	old := open(t, Options{Secrets: secrets(t, secretA, secretB)})
	young := open(t, Options{Secrets: secrets(t, secretB, secretA)})
	for _, c := range []struct {
		name           string
		server, client *Node
		ok             bool
	}{
		{"same secret", a, b, true},
		{"other secret", a, stranger, false},
		{"other secret, other way", stranger, a, false},
		{"overlap, old calls new", young, old, true},
		{"overlap, new calls old", old, young, true},
		{"overlap does not reach nodes without it", a, young, false},
	} {
		_, serr := c.client.Certificate().Leaf.Verify(x509.VerifyOptions{Roots: c.server.Roots(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		_, cerr := c.server.Certificate().Leaf.Verify(x509.VerifyOptions{Roots: c.client.Roots()})
		if ok := serr == nil && cerr == nil; ok != c.ok {
			t.Errorf("%s: %v, %v", c.name, serr, cerr)
		}
	}
}

func TestOpenKeepsOrRenews(t *testing.T) {
	now := time.Now()
	base := Options{Secrets: secrets(t, secretA), Name: "n1", Now: func() time.Time { return now }}
	for _, c := range []struct {
		name   string
		change func(*Options)
		damage func(dir string) error
		keep   bool // of the serving certificate
	}{
		{name: "nothing changed", keep: true},
		{name: "half its life", change: func(o *Options) { o.Now = func() time.Time { return now.Add(180 * 24 * time.Hour) } }, keep: true},
		{name: "two thirds of its life", change: func(o *Options) { o.Now = func() time.Time { return now.Add(250 * 24 * time.Hour) } }},
		{name: "long expired", change: func(o *Options) { o.Now = func() time.Time { return now.Add(2000 * 24 * time.Hour) } }},
		{name: "new address", change: func(o *Options) { o.Hosts = []string{"10.1.1.1"} }},
		{name: "new secret", change: func(o *Options) { o.Secrets = []Secret{{secretB}} }},
		{name: "key lost", damage: func(d string) error { return os.Remove(filepath.Join(d, FileServingKey)) }},
		{name: "certificate garbled", damage: func(d string) error {
			return os.WriteFile(filepath.Join(d, FileServingCert), []byte("garbage"), 0o644)
		}},
		{name: "another key (crash between two writes)", damage: func(d string) error {
			b, err := os.ReadFile(filepath.Join(d, FilePeerKey))
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(d, FileServingKey), b, 0o600)
		}},
	} {
		opt := base
		opt.Dir = filepath.Join(t.TempDir(), "pki")
		before, _ := open(t, opt).ServingCertificate(nil)
		if c.damage != nil {
			must.OK(t, c.damage(opt.Dir))
		}
		if c.change != nil {
			c.change(&opt)
		}
		n := open(t, opt)
		after, _ := n.ServingCertificate(nil)
		if kept := bytes.Equal(before.Leaf.Raw, after.Leaf.Raw); kept != c.keep {
			t.Errorf("%s: kept is %v", c.name, kept)
		}
		if err := n.signing.api.verify(after.Leaf, x509.ExtKeyUsageServerAuth, n.opt.Now()); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		// What is on disk is what is served.
		if _, err := tls.LoadX509KeyPair(filepath.Join(opt.Dir, FileServingCert), filepath.Join(opt.Dir, FileServingKey)); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// A node that runs for years serves a valid leaf all the time.
func TestRotationWhileServing(t *testing.T) {
	var days atomic.Int64
	start := time.Now()
	clock := func() time.Time { return start.Add(time.Duration(days.Load()) * 24 * time.Hour) }
	renewed := make(chan struct{}, 16)
	n := open(t, Options{
		Secrets: secrets(t, secretA), CheckEvery: 5 * time.Millisecond, Now: clock,
		OnRenew: func() {
			select {
			case renewed <- struct{}{}:
			default:
			}
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { n.Run(ctx) })
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{GetCertificate: n.ServingCertificate})
	must.OK(t, err)
	defer l.Close()
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.SetDeadline(time.Now().Add(5 * time.Second))
			_ = c.(*tls.Conn).Handshake()
			c.Close()
		}
	})
	serials := map[string]bool{}
	for range 3 {
		c, err := tls.DialWithDialer(&net.Dialer{Timeout: 5 * time.Second}, "tcp", l.Addr().String(), &tls.Config{RootCAs: n.APIRoots(), ServerName: "localhost", Time: clock})
		must.OK(t, err)
		serials[c.ConnectionState().PeerCertificates[0].SerialNumber.String()] = true
		c.Close()
		before, _ := n.ServingCertificate(nil)
		days.Add(300)
		// The clock may jump in the middle of a round: then it takes two.
		for after := before; after.Leaf.Equal(before.Leaf); after, _ = n.ServingCertificate(nil) {
			select {
			case <-renewed:
			case <-time.After(10 * time.Second):
				t.Fatal("not renewed")
			}
		}
	}
	if len(serials) != 3 {
		t.Error("the listener did not serve a renewed certificate")
	}
}

func TestKubeconfig(t *testing.T) {
	dir := t.TempDir()
	k := Kubeconfig{
		Endpoints: []Endpoint{{"quorate-n1", "https://127.0.0.1:6443"}, {"quorate-n2", "https://127.0.0.1:6444"}},
		CA:        []byte("ca"), Cert: []byte("cert"), Key: []byte("key"),
	}
	path := filepath.Join(dir, "admin.kubeconfig")
	old := syscall.Umask(0)
	err := k.Write(path)
	syscall.Umask(old)
	must.OK(t, err)
	if st, _ := os.Stat(path); st.Mode() != ModeSecret {
		t.Errorf("mode %v", st.Mode())
	}
	got, err := ReadKubeconfig(path, "")
	must.OK(t, err)
	if got.Current != "quorate-n1" || len(got.Endpoints) != 2 || got.Endpoints[0] != k.Endpoints[0] || string(got.CA) != "ca" || string(got.Cert) != "cert" || string(got.Key) != "key" {
		t.Errorf("read back %+v", got)
	}
	if got, err = ReadKubeconfig(path, "quorate-n2"); err != nil || got.Endpoints[0] != k.Endpoints[1] {
		t.Errorf("second context: %+v, %v", got, err)
	}
	if _, err = ReadKubeconfig(path, "nosuch"); err == nil {
		t.Error("an unknown context was accepted")
	}
	if _, err = ReadKubeconfig(filepath.Join(dir, "nosuch"), ""); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if err := (Kubeconfig{}).Write(path); err == nil {
		t.Error("a kubeconfig without servers was written")
	}
}

// Someone's own file, in kubectl's order, with another cluster in it.
func TestKubeconfigMerged(t *testing.T) {
	got, err := parseKubeconfig([]byte(`
apiVersion: v1
clusters:
- cluster: {certificate-authority-data: eA==, server: "https://other"}
  name: other
- cluster: {certificate-authority: /ca.pem, server: "https://a"}
  name: a
contexts:
- context: {cluster: other, user: them}
  name: other
- context: {cluster: a, user: us, namespace: x}
  name: a
current-context: a
kind: Config
users:
- name: them
  user: {token: x}
- name: us
  user: {client-certificate: /c.pem, client-key: /k.pem}
`), "", func(p string) ([]byte, error) { return []byte(p), nil })
	must.OK(t, err)
	if len(got.Endpoints) != 1 || got.Endpoints[0].Server != "https://a" || string(got.CA) != "/ca.pem" || string(got.Cert) != "/c.pem" || string(got.Key) != "/k.pem" {
		t.Errorf("%+v", got)
	}
}

func FuzzParseKubeconfig(f *testing.F) {
	k := Kubeconfig{Endpoints: []Endpoint{{"a", "https://a"}}, CA: []byte("ca"), Cert: []byte("c"), Key: []byte("k")}
	b, _ := k.Encode()
	f.Add(b, "")
	f.Add([]byte("clusters: [{name: a}]\ncontexts: [{name: a}]"), "a")
	f.Fuzz(func(t *testing.T, data []byte, name string) {
		k, err := parseKubeconfig(data, name, func(string) ([]byte, error) { return nil, fs.ErrNotExist })
		if err == nil && len(k.Endpoints) == 0 {
			t.Fatal("no server and no error")
		}
	})
}

func TestSudoUser(t *testing.T) {
	for _, c := range []struct {
		euid     int
		uid, gid string
		ok       bool
	}{{0, "1000", "1000", true}, {1000, "1000", "1000", false}, {0, "", "", false}, {0, "0", "0", false}, {0, "x", "1", false}, {0, "-5", "1", false}} {
		env := map[string]string{"SUDO_UID": c.uid, "SUDO_GID": c.gid}
		if _, _, ok := sudoUser(c.euid, func(k string) string { return env[k] }); ok != c.ok {
			t.Errorf("%+v: %v", c, ok)
		}
	}
}

// TestNodesOf: the administrator's certificate in a node's directory says whose it is, and
// one that does not is made again; those of users and of no node say nothing.
func TestNodesOf(t *testing.T) {
	dir := t.TempDir()
	n, err := Open(Options{Dir: dir, Secrets: secrets(t, secretA), NodeID: "n-1", Name: "one"})
	must.OK(t, err)
	if got := NodesOf(n.AdminCertificate().Leaf); !slices.Equal(got, []proto.NodeID{"n-1"}) {
		t.Errorf("the administrator's certificate is that of %q", got)
	}
	if got := NodesOf(n.Certificate().Leaf); got != nil {
		t.Errorf("a peer's name is taken for an administrator's: %q", got)
	}
	old, err := n.signing.api.issue(adminRequest("").template(time.Now(), time.Hour))
	must.OK(t, err)
	if got := NodesOf(old.cert); got != nil {
		t.Errorf("a certificate of no node is that of %q", got)
	}
	must.OK(t, errors.Join(WriteFile(n.path(FileAdminKey), old.keyPEM, ModeSecret), WriteFile(n.path(FileAdminCert), old.certPEM, ModePublic)))
	if n, err = Open(Options{Dir: dir, Secrets: secrets(t, secretA), NodeID: "n-1", Name: "one"}); err != nil {
		t.Fatal(err)
	}
	if got := NodesOf(n.AdminCertificate().Leaf); len(got) != 1 {
		t.Errorf("the certificate without a node was kept: %q", got)
	}
}

// TestAdminOnly: a directory that no node serves from holds nothing that could
// pass for a node.
func TestAdminOnly(t *testing.T) {
	dir := t.TempDir()
	n, err := Open(Options{Dir: dir, Secrets: secrets(t, secretA), AdminOnly: true})
	must.OK(t, err)
	if got := n.AdminCertificate().Leaf.Subject.CommonName; got != "quorate-admin" {
		t.Errorf("the administrator is called %q", got)
	}
	for _, file := range []string{FileServingCert, FileServingKey, FilePeerCert, FilePeerKey, FileKubeletCert, FileKubeletKey} {
		if _, err := os.Stat(filepath.Join(dir, file)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s was made (%v)", file, err)
		}
	}
	for _, file := range []string{FileAPICA, FileAdminCert, FileAdminKey} {
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			t.Error(err)
		}
	}
	if _, err := Open(Options{Dir: dir, Secrets: secrets(t, secretA)}); err == nil {
		t.Error("a node without an id was accepted")
	}
}
