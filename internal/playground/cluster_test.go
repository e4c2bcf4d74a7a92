package playground

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"sigs.k8s.io/yaml"
)

func optionsIn(dir string) Options {
	return Options{Nodes: 3, DataDir: dir, Kubeconfig: filepath.Join(dir, "kubeconfig"), APIPort: 20000}
}

// openPlayground makes or opens a playground and notes it, as its first start does.
func openPlayground(t *testing.T, o Options) *cluster {
	t.Helper()
	c, err := openCluster(o)
	must.OK(t, err)
	must.OK(t, c.write())
	return c
}

// settingsOf reads the file that a playground wrote for a node: each setting as its flag would be given.
func settingsOf(t *testing.T, c *cluster, n *Node) map[string]string {
	t.Helper()
	b, err := os.ReadFile(n.settingsFile())
	must.OK(t, err)
	var raw map[string]any
	must.OK(t, yaml.UnmarshalStrict(b, &raw))
	out := map[string]string{}
	for name, value := range raw {
		out[name] = strings.ReplaceAll(strings.Trim(fmt.Sprint(value), "[]"), " ", ",")
	}
	return out
}

// peersOf are the peer addresses of the first n nodes, as a setting.
func peersOf(c *cluster, n int) string {
	var out []string
	for _, node := range c.Nodes[:n] {
		out = append(out, node.Peer)
	}
	return strings.Join(out, ",")
}

func TestOpenClusterMakesOne(t *testing.T) {
	dir := t.TempDir()
	o := optionsIn(dir)
	o.Set = []string{"snapshot-entries=77", "tls-san=a,b"}
	c := openPlayground(t, o)
	if got := strings.Join(namesOf(c.Nodes), " "); got != "n1 n2 n3" {
		t.Fatalf("nodes %s", got)
	}
	for _, n := range c.Nodes {
		want := map[string]string{
			"name": n.Name, "data-dir": n.DataDir, "bootstrap-expect": "3", "join": peersOf(c, 3),
			"api-address": strings.TrimPrefix(n.API, "https://"), "peer-address": n.Peer,
			"token-file": filepath.Join(dir, "token"), "log-format": "text", "snapshot-entries": "77", "tls-san": "a,b",
		}
		if got := settingsOf(t, c, n); !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", n.Name, got, want)
		}
	}
	for _, secret := range []string{"cluster.json", "kubeconfig", "token", "n1.yaml", "pki/admin.key"} {
		info, err := os.Stat(filepath.Join(dir, secret))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, want mode 0600 (%v)", secret, info, err)
		}
	}
}

func TestOpenClusterOfOne(t *testing.T) {
	o := optionsIn(t.TempDir())
	o.Nodes = 1
	c := openPlayground(t, o)
	if cfg := settingsOf(t, c, c.Nodes[0]); cfg["bootstrap-expect"] != "1" || cfg["join"] != "" {
		t.Errorf("%v", cfg)
	}
}

// TestOpenClusterWithNonvoters: they join the voters, and nobody waits for them.
func TestOpenClusterWithNonvoters(t *testing.T) {
	o := optionsIn(t.TempDir())
	o.Nodes, o.Nonvoters = 1, 2
	c := openPlayground(t, o)
	if got := strings.Join(namesOf(c.Nodes), " "); got != "n1 n2 n3" {
		t.Fatalf("nodes %s", got)
	}
	for i, n := range c.Nodes {
		cfg := settingsOf(t, c, n)
		if i == 0 && (cfg["nonvoter"] != "" || cfg["bootstrap-expect"] != "1" || cfg["join"] != "") {
			t.Errorf("the voter: %v", cfg)
		}
		if i > 0 && (cfg["nonvoter"] != "true" || cfg["bootstrap-expect"] != "" || cfg["join"] != peersOf(c, 1)) {
			t.Errorf("%s: %v", n.Name, cfg)
		}
	}
}

// TestOpenClusterKeeps: an existing cluster keeps its nodes, ports and secret,
// whatever the flags say; --set of a later start is added.
func TestOpenClusterKeeps(t *testing.T) {
	dir := t.TempDir()
	o := optionsIn(dir)
	o.Set = []string{"snapshot-entries=77"}
	first := openPlayground(t, o)
	secret, err := os.ReadFile(filepath.Join(dir, "token"))
	must.OK(t, err)
	o.Nodes, o.APIPort, o.Set, o.Kubeconfig = 5, 30000, []string{"trailing-logs=88"}, filepath.Join(dir, "other")
	second := openPlayground(t, o)
	if len(second.Nodes) != 3 {
		t.Fatalf("%d nodes", len(second.Nodes))
	}
	for i, n := range second.Nodes {
		if n.API != first.Nodes[i].API || n.Peer != first.Nodes[i].Peer {
			t.Errorf("%s moved to %s and %s", n.Name, n.API, n.Peer)
		}
		cfg := settingsOf(t, second, n)
		if cfg["snapshot-entries"] != "77" || cfg["trailing-logs"] != "88" || cfg["join"] != peersOf(first, 3) {
			t.Errorf("%s: %v", n.Name, cfg)
		}
	}
	if second.Kubeconfig != o.Kubeconfig {
		t.Errorf("the kubeconfig is %s", second.Kubeconfig)
	}
	if now, err := os.ReadFile(filepath.Join(dir, "token")); err != nil || string(now) != string(secret) {
		t.Errorf("the secret has changed (%v)", err)
	}
}

// TestOpenClusterRefuses: bad flags make nothing.
func TestOpenClusterRefuses(t *testing.T) {
	for _, x := range []struct {
		name   string
		change func(*Options)
		want   string
	}{
		{"no nodes", func(o *Options) { o.Nodes = 0 }, "--nodes 0"},
		{"too many nodes", func(o *Options) { o.Nodes = 10 }, "--nodes 10"},
		{"too many with nonvoters", func(o *Options) { o.Nonvoters = 7 }, "--nonvoters 7: must be 0 to 6"},
		{"fewer than no nonvoters", func(o *Options) { o.Nonvoters = -1 }, "--nonvoters -1"},
		{"no port", func(o *Options) { o.APIPort = 0 }, "--api-port 0"},
		{"ports beyond the last", func(o *Options) { o.APIPort = 64534 }, "--api-port 64534"},
	} {
		t.Run(x.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "play")
			o := optionsIn(dir)
			x.change(&o)
			if _, err := openCluster(o); err == nil || !strings.Contains(err.Error(), x.want) {
				t.Errorf("got %v, want %q in it", err, x.want)
			}
			if entries, _ := os.ReadDir(dir); len(entries) > 0 {
				t.Errorf("%s was made", entries[0].Name())
			}
		})
	}
	o := optionsIn(t.TempDir())
	o.APIPort = 64533 // the last peer port is 65535
	openPlayground(t, o)
}

// TestDamagedClusterFile: a cluster.json that no playground has written is no reason to
// make another cluster over the data of the first, and nothing is ended or removed by it.
func TestDamagedClusterFile(t *testing.T) {
	for _, x := range []struct{ content, want string }{
		{`{"nodes":`, "unexpected end of JSON input"},
		{``, "unexpected end of JSON input"},
		{`{}`, "it has no nodes"},
		{`{"nodes":[null]}`, "node 1 has no name"},
		{`{"nodes":[{"name":"../n1","dataDir":"DIR/n1"}]}`, "node 1 has no name"},
		{`{"nodes":[{"name":"n1","dataDir":"DIR/n1"},{"name":"n1","dataDir":"DIR/n1"}]}`, "node 2 has no name"},
		{`{"nodes":[{"name":"n1","dataDir":"/etc"}]}`, `the directory of n1 is "/etc"`},
		{`{"nodes":[{"name":"n1","dataDir":"DIR/n1"},{"name":"n2","dataDir":"/etc/n2"}]}`, `the directory of n2 is "/etc/n2"`},
		{`{"nodes":[{"name":"n1","dataDir":"/elsewhere/n1"}]}`, "was made in /elsewhere"},
	} {
		dir := t.TempDir()
		content := strings.ReplaceAll(x.content, "DIR", dir)
		must.OK(t, os.WriteFile(clusterFile(dir), []byte(content), 0o600))
		if _, err := openCluster(optionsIn(dir)); err == nil || errors.Is(err, ErrNone) || !strings.Contains(err.Error(), x.want) ||
			!errors.Is(err, errMoved) && !strings.Contains(err.Error(), "rm -r "+dir) {
			t.Errorf("%s: %v, want %q in it", x.content, err, x.want)
		}
		if entries, _ := os.ReadDir(dir); len(entries) != 1 {
			t.Errorf("%s: made %v", x.content, entries)
		}
	}
}

// TestOpenClusterOfOthers: a directory that holds anything else is nobody's playground.
func TestOpenClusterOfOthers(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{lockFile, "lost+found"} { // ours, and a file system's
		must.OK(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	if _, err := planCluster(optionsIn(dir)); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	if _, err := openCluster(optionsIn(dir)); err == nil || !strings.Contains(err.Error(), "not empty: it has a, b, c and 2 more.") {
		t.Errorf("got %v", err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 7 {
		t.Errorf("made %v", entries)
	}
}

// pretendData writes what a node notes of its cluster.
func pretendData(t *testing.T, n *Node, cluster string) {
	t.Helper()
	must.OK(t, os.MkdirAll(n.DataDir, 0o700))
	text := fmt.Sprintf(`{"version":1,"nodeID":"%032d","name":%q,"clusterID":%q}`, 1, n.Name, cluster)
	must.OK(t, os.WriteFile(filepath.Join(n.DataDir, "node.json"), []byte(text), 0o600))
}

// TestOtherLayout: a playground that never formed, because a port was taken for instance,
// can be asked for with other nodes and ports. One that has, keeps them and says so.
func TestOtherLayout(t *testing.T) {
	o := optionsIn(t.TempDir())
	o.Set = []string{"snapshot-entries=77"}
	first := openPlayground(t, o)
	pretendData(t, first.Nodes[0], "") // started, and never part of a cluster
	must.OK(t, os.WriteFile(first.Nodes[2].Log, nil, 0o600))

	o.Nodes, o.Nonvoters, o.APIPort, o.Set = 1, 1, 30000, nil
	o.Given = map[string]bool{"nodes": true, "nonvoters": true, "api-port": true}
	second := openPlayground(t, o)
	if len(second.Nodes) != 2 || second.Nodes[0].API != "https://127.0.0.1:30000" || second.note != "" {
		t.Fatalf("%+v, note %q", second.Nodes[0], second.note)
	}
	if cfg := settingsOf(t, second, second.Nodes[0]); cfg["bootstrap-expect"] != "1" || cfg["snapshot-entries"] == "77" {
		t.Errorf("%v", cfg)
	}
	for _, name := range []string{"n1", "n3.yaml", "n3.log"} {
		if _, err := os.Stat(filepath.Join(o.DataDir, name)); err == nil {
			t.Errorf("%s of the first is left", name)
		}
	}

	pretendData(t, second.Nodes[0], "one")
	o.Nodes, o.Nonvoters, o.APIPort, o.Set = 3, 0, 40000, []string{"nonvoter=true", "trailing-logs=88"}
	third := openPlayground(t, o)
	if len(third.Nodes) != 2 || third.Nodes[0].API != "https://127.0.0.1:30000" {
		t.Errorf("%+v", third.Nodes[0])
	}
	want := "has 2 nodes, with APIs from port 30000 on; ignored: --nodes 3, --nonvoters 0, --api-port 40000, --set nonvoter=true\n"
	if !strings.Contains(third.note, want) {
		t.Errorf("it says %q, want %q in it", third.note, want)
	}
	if cfg := settingsOf(t, third, third.Nodes[0]); cfg["trailing-logs"] != "88" {
		t.Errorf("trailing-logs %s", cfg["trailing-logs"])
	}
	o.Nodes, o.Nonvoters, o.APIPort, o.Set = 1, 1, 30000, nil
	if again := openPlayground(t, o); again.note != "" {
		t.Errorf("the same flags: %q", again.note)
	}
}

// TestNextSteps: the variable that is printed holds in other directories, and of a node that cannot take part
// is said how it comes back, instead of how another one is killed.
func TestNextSteps(t *testing.T) {
	dir := t.TempDir()
	c := openPlayground(t, optionsIn(filepath.Join(dir, "play")))
	t.Chdir(dir)
	var out bytes.Buffer
	c.printNextSteps(&out, time.Second, true)
	if want := "export KUBECONFIG=" + c.Kubeconfig + "\n"; !filepath.IsAbs(c.Kubeconfig) || !strings.Contains(out.String(), want) || !strings.Contains(out.String(), "Break it:") {
		t.Errorf("%q is not in\n%s", want, &out)
	}
	out.Reset()
	n := c.Nodes[1]
	c.broken = map[*Node]error{n: exited{n, ": damaged data"}}
	must.OK(t, os.Mkdir(n.DataDir+".aside", 0o700))
	c.printNextSteps(&out, time.Second, true)
	for _, want := range []string{"Quorate is ready: 2 of 3 nodes in ", "\nn2 has exited: damaged data\n", "mv play/n2 play/n2.aside2\n", " member remove n2 --kubeconfig play/kubeconfig\n", " dev start n2 --data-dir play\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), "Break it:") {
		t.Errorf("another node is to be killed\n%s", &out)
	}
}

// TestDataOfAnotherCluster is seen before anything is started.
func TestDataOfAnotherCluster(t *testing.T) {
	c := openPlayground(t, optionsIn(t.TempDir()))
	for _, x := range []struct {
		clusters []string // "": none yet
		want     string
	}{
		{[]string{"", "", ""}, ""},
		{[]string{"one", "", "one"}, ""},
		{[]string{"one", "two", "one"}, "the data of n2 belongs to cluster two, that of n1 and n3 to one: put its own directory back to " + c.Nodes[1].DataDir},
		{[]string{"one", "", "two"}, "the data of n3 belongs to cluster two, that of n1 to one"},
	} {
		for i, cluster := range x.clusters {
			pretendData(t, c.Nodes[i], cluster)
		}
		err := c.inOrder(c.checkData(c.Nodes...))
		if x.want == "" && err != nil || x.want != "" && (err == nil || !strings.HasPrefix(err.Error(), x.want)) {
			t.Errorf("%q: %v, want %q", x.clusters, err, x.want)
		}
		if err := c.inOrder(c.checkData(c.Nodes[0])); err != nil {
			t.Errorf("%q, and only n1 is to run: %v", x.clusters, err)
		}
	}
}

// TestRemove removes what a playground has made, and nothing else.
func TestRemove(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "play")
	c := openPlayground(t, optionsIn(dir))
	pretendData(t, c.Nodes[1], "one")
	for _, name := range []string{lockFile, "mine.txt", "n4.log"} {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	left, err := c.remove()
	if err != nil || strings.Join(left, " ") != "mine.txt n4.log" {
		t.Errorf("left %q, %v", left, err)
	}
	for _, name := range left {
		must.OK(t, os.Remove(filepath.Join(dir, name)))
	}
	c = openPlayground(t, optionsIn(dir))
	if left, err := c.remove(); err != nil || len(left) > 0 {
		t.Errorf("left %q, %v", left, err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the directory is left")
	}
}

// TestRunning: a pid that another program has got since is not a running node.
func TestRunning(t *testing.T) {
	n := &Node{Name: "n1", DataDir: filepath.Join(t.TempDir(), "n1")}
	if n.Running() {
		t.Error("a node that was never started runs")
	}
	n.PID = os.Getpid()
	if n.Running() {
		t.Error("this test is taken for a node")
	}
}

func TestEnvironment(t *testing.T) {
	three := &cluster{Nodes: make([]*Node, 3)}
	for _, c := range []struct {
		env        []string
		processors int
		want       string
	}{
		{[]string{"PATH=/bin", "QUORATE_NAME=a", "QUORATES=b"}, 2, "PATH=/bin QUORATES=b GOMAXPROCS=2"},
		{nil, 8, "GOMAXPROCS=3"},
		{[]string{"GOMAXPROCS=7"}, 8, "GOMAXPROCS=7 GOMAXPROCS=7"},
	} {
		if got := strings.Join(three.environment(c.env, c.processors), " "); got != c.want {
			t.Errorf("%v on %d processors: %q, want %q", c.env, c.processors, got, c.want)
		}
	}
}

// TestReason: of a log's end the error that ended the process, or else its last lines.
func TestReason(t *testing.T) {
	for _, c := range []struct{ log, want string }{
		{"", ""},
		{"time=1 msg=a\nerror: peer port: taken\n", ": peer port: taken"},
		{"error: old\ntime=1 msg=a\nerror: no secret\n  do this\n  or that\n", ": no secret\n  do this\n  or that"},
		{"error: the only line", ": the only line"},
		{"time=1 msg=a\ntime=2 msg=\"error: b\"\n", "; its last lines:\n  time=1 msg=a\n  time=2 msg=\"error: b\""},
		{"1\n2\n3\n4\n5\n6\n7\n8\n9\n", "; its last lines:\n  2\n  3\n  4\n  5\n  6\n  7\n  8\n  9"},
	} {
		if got := reason(c.log); got != c.want {
			t.Errorf("%q: %q, want %q", c.log, got, c.want)
		}
	}
}

// TestWhy shows whole lines of this run alone, of a long log the last ones.
func TestWhy(t *testing.T) {
	n := &Node{Log: filepath.Join(t.TempDir(), "log")}
	must.OK(t, os.WriteFile(n.Log, []byte("error: of the run before\n"+strings.Repeat("a line\n", whyBytes)+"the last line\n"), 0o600))
	want := "; its last lines:\n" + strings.Repeat("  a line\n", whyLines-1) + "  the last line\nIts log: " + n.Log
	n.logStart = int64(len("error: of the run before\n"))
	if got := n.why(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
