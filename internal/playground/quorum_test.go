package playground

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/membership"
)

// TestLackOf: a node that was started is waited for, unless too few run.
func TestLackOf(t *testing.T) {
	// A node of the playground: name, v for a voter of the cluster, ! for one that does not run.
	for _, c := range []struct{ nodes, others, waiting, want string }{
		{"n1v n2v n3v!", "", "", ""},
		{"n1v n2v! n3v!", "", "", "of 3 voters n1 runs, and 2 are needed; n2 is stopped, n3 is stopped\nStart the rest:  " + self() + " dev start n2 n3 "},
		{"n1v n2v! n3!", "", "", "of 2 voters n1 runs, and 2 are needed; n2 is stopped"},
		{"n1v n2!", "", "", ""},                          // recovered: alone it is a quorum
		{"n1v n2v!", "x", "", ""},                        // one of elsewhere answers
		{"n1v n2v!", "x!", "", "n2 is stopped, x: gone"}, //
		{"n1v", "x! y!", "", "x: gone, y: gone"},         // nothing of ours is to be started
		{"n1 n2", "", "", ""},                            // no configuration yet
		{"n1 n2! n3!", "", "1 of 3 found", "n1 waits for all nodes, and n2 and n3 are stopped\nStart the rest:  " + self() + " dev start n2 n3 "},
		{"n1 n2 n3", "", "1 of 3 found", ""},
	} {
		dir := t.TempDir()
		play := &cluster{dir: dir}
		var st membership.ClusterStatus
		st.Waiting = c.waiting
		for word := range strings.FieldsSeq(c.nodes) {
			n := &Node{Name: word[:2], Peer: word[:2] + ":7443", DataDir: filepath.Join(dir, word[:2])}
			if !strings.HasSuffix(word, "!") {
				n.PID = pretend(t, n)
			}
			play.Nodes = append(play.Nodes, n)
			m := membership.MemberStatus{MemberInfo: membership.MemberInfo{Name: n.Name, PeerAddress: n.Peer, Voter: strings.Contains(word, "v")}}
			if word != "n1v" {
				m.Error = "no answer" // one that has just been started does not answer yet
			}
			st.Members = append(st.Members, m)
		}
		for word := range strings.FieldsSeq(c.others) {
			m := membership.MemberStatus{MemberInfo: membership.MemberInfo{Name: word[:1], PeerAddress: "elsewhere", Voter: true}}
			if strings.HasSuffix(word, "!") {
				m.Error = "gone"
			}
			st.Members = append(st.Members, m)
		}
		if got := play.lackOf("n1", st); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s, %s: %q, want %q", c.nodes, c.others, got, c.want)
		}
	}
}

// pretend starts a process that looks like a node's.
func pretend(t *testing.T, n *Node) int {
	t.Helper()
	p, err := os.StartProcess("/bin/sh", []string{"sh", "-c", "read line", n.DataDir + ".yaml"}, &os.ProcAttr{Files: []*os.File{pipeEnd(t)}})
	must.OK(t, err)
	t.Cleanup(func() {
		_ = p.Kill()
		_, _ = p.Wait()
	})
	return p.Pid
}

// pipeEnd is the end of a pipe from which nothing comes.
func pipeEnd(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	must.OK(t, err)
	t.Cleanup(func() {
		r.Close()
		w.Close()
	})
	return r
}
