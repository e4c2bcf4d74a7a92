package membership

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
)

func TestHistories(t *testing.T) {
	data, err := os.ReadFile("testdata/histories.txt")
	must.OK(t, err)
	blocks := strings.Split(string(data), "\n== ")
	for _, block := range blocks[1:] {
		name, script, _ := strings.Cut(block, "\n")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			for line := range strings.Lines(script) {
				if f := strings.Fields(line); len(f) > 0 {
					w.run(f)
				}
			}
			w.checkOneCluster()
		})
	}
}

// hasEnded reports whether the node's Run is over.
func (mc *machine) hasEnded() bool {
	select {
	case err := <-mc.done:
		mc.done <- err
		return true
	default:
		return false
	}
}

// checkOneCluster fails when the nodes that share a configuration do not share
// a cluster.
func (w *world) checkOneCluster() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.machines {
		for _, b := range w.machines {
			if _, in := a.conf.Find(b.id); in && b.cluster != "" && a.cluster != b.cluster {
				w.t.Errorf("%s has %s in its cluster %s, which says %s", a.name, b.name, a.cluster, b.cluster)
			}
		}
	}
}

func (w *world) run(f []string) {
	w.t.Helper()
	mc := w.machine(f[1])
	text := strings.Join(f[min(2, len(f)):], " ")
	switch f[0] {
	case "start":
		w.stop(mc)
		w.start(mc, w.options(f[2:]))
	case "stop":
		w.stop(mc)
	case "wipe":
		w.wipe(mc, text != "raft")
	case "crash":
		mc.crash = text
	case "crashed":
		w.await(mc.name+" crashes", mc.hasEnded)
		w.stop(mc)
	case "revive":
		options := slices.IndexFunc(f, func(s string) bool { return strings.Contains(s, "=") })
		for names := f[1:options]; len(names) > 0; {
			at := -1
			w.await("one of "+strings.Join(names, ", ")+" crashes", func() bool {
				at = slices.IndexFunc(names, func(name string) bool { return w.machine(name).hasEnded() })
				return at >= 0
			})
			again := w.machine(names[at])
			w.stop(again)
			w.start(again, w.options(f[options:]))
			names = slices.Delete(names, at, at+1)
		}
	case "move":
		w.mu.Lock()
		mc.address = w.freshAddressLocked()
		w.mu.Unlock()
	case "moved":
		w.await(mc.name+" is at its new address everywhere", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, other := range w.machines {
				if s, _ := other.conf.Find(mc.id); other.up && (s.Address != mc.address || !s.Voter) {
					return false
				}
			}
			return true
		})
	case "lag":
		n, err := strconv.ParseUint(text, 10, 64)
		must.OK(w.t, err)
		w.mu.Lock()
		mc.lag = n
		w.mu.Unlock()
	case "waits":
		w.await(strings.Join(f, " "), func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return strings.Contains(mc.reason, text)
		})
	case "fails":
		w.await(strings.Join(f, " "), func() bool {
			select {
			case err := <-mc.done:
				mc.done <- err
				if err == nil || !strings.Contains(err.Error(), text) {
					w.t.Fatalf("%s: %v, want %q", mc.name, err, text)
				}
				return true
			default:
				return false
			}
		})
	case "formed":
		w.formed(f[1:])
	case "unformed":
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, name := range f[1:] {
			if w.machines[name].state {
				w.t.Fatalf("%s has a cluster", name)
			}
		}
	case "members":
		w.await(strings.Join(f, " "), func() bool { return slices.Equal(w.members(f[1:]), f[1:]) })
	default:
		w.t.Fatalf("unknown command %q", f)
	}
}

func (w *world) options(args []string) func(*Options) {
	return func(o *Options) {
		for _, arg := range args {
			key, value, _ := strings.Cut(arg, "=")
			switch key {
			case "expect":
				o.BootstrapExpect, _ = strconv.Atoi(value)
			case "join":
				for name := range strings.SplitSeq(value, ",") {
					o.Join = append(o.Join, w.machine(name).address)
				}
			case "nonvoter":
				o.NonVoter = true
			default:
				w.t.Fatalf("unknown option %q", arg)
			}
		}
	}
}

func (w *world) formed(names []string) {
	w.t.Helper()
	var cluster proto.ClusterID
	for _, name := range names {
		mc := w.machine(name)
		w.await(name+" is formed", func() bool {
			select {
			case <-mc.node.Formed():
				return true
			default:
				return false
			}
		})
		if c := mc.node.id.savedCluster(); c == "" || cluster != "" && c != cluster {
			w.t.Fatalf("%s is in cluster %q, the others in %q", name, c, cluster)
		} else {
			cluster = c
		}
		if _, err := os.Stat(mc.node.discovered.path); !os.IsNotExist(err) {
			w.t.Errorf("%s: %s is left: %v", name, discoveredPeersFile, err)
		}
	}
}

// members is the configuration as the first machine has it.
func (w *world) members(names []string) []string {
	mc := w.machine(names[0])
	conf := fakeRaft{mc}.Members()
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, s := range conf.Servers {
		name := string(s.ID)
		if m := w.byID(s.ID); m != nil {
			name = m.name
		}
		if !s.Voter {
			name = "-" + name
		}
		out = append(out, name)
	}
	slices.SortFunc(out, func(a, b string) int {
		return strings.Compare(strings.TrimPrefix(a, "-"), strings.TrimPrefix(b, "-"))
	})
	return out
}
