package faults

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// saidWithin bounds how long a command takes to say that there is no quorum: 2 s until it is
// known where processes are frozen, and what a busy machine needs to start the command.
const saidWithin = 5 * time.Second

// TestNoQuorumIsSaid: without a quorum, what would change the cluster says soon who is
// missing, by name and address, and what to do, and ends with 3 as `quorate status` does.
// Also where the kubeconfig's first node is one of the missing.
func TestNoQuorumIsSaid(t *testing.T) {
	cluster.SkipInShort(t, "it measures how long a fault lasts")
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			c := cluster.Start(t, 3)
			left := c.Node(t, "n2")
			lost := c.Others(left)
			// From its own state, in which a member writes its name once there is a leader.
			cluster.Await(t, 20*time.Second, "n2 knows all by name", func() string {
				body, _, err := left.Get(t, "/quorate/v1/members")
				if err != nil || strings.Count(string(body), `"name":"n`) < 3 {
					return fmt.Sprint(err, string(body))
				}
				return ""
			})
			for _, n := range lost {
				must.OK(t, syscall.Kill(n.PID, signal))
			}
			for _, n := range lost {
				cluster.Await(t, 10*time.Second, n.Name+" does nothing any more", func() string { return still(n) })
			}
			why := "connection refused at "
			if signal == syscall.SIGSTOP {
				why = "no answer from "
			}
			cluster.Await(t, 15*time.Second, "n2 follows nobody", func() string {
				st, err := left.Status(t)
				if err != nil {
					return err.Error()
				}
				for _, m := range st.Members {
					if m.Name == left.Name && (m.Role == "candidate" || m.Role == "follower") && !st.Quorum {
						return ""
					}
				}
				return fmt.Sprintf("%+v", st)
			})
			var all sync.WaitGroup
			for _, args := range [][]string{
				{"member", "add", "127.0.0.1:1"}, {"member", "promote", "n3"}, {"member", "demote", "n3"}, {"member", "remove", "n1", "--force"},
				{"member", "transfer-leader"}, {"token", "create"},
				{"token", "create", "--worker"}, {"token", "delete", "abcdef"}, {"kubeconfig", "--user", "bob", "--to", filepath.Join(t.TempDir(), "bob")}, {"token", "list"},
			} {
				all.Go(func() {
					began, clock := time.Now(), cluster.StartStopwatch()
					out, err := c.TryQuorate(t, slices.Concat(args, []string{"--kubeconfig", c.Kubeconfig, "--context", "quorate-n2"})...)
					took := time.Since(began)
					var exit *exec.ExitError
					if args[1] == "add" && errors.As(err, &exit) && exit.ExitCode() == 1 && strings.Contains(out, "127.0.0.1:1 does not answer") {
						return // that node was asked first
					}
					if !errors.As(err, &exit) || exit.ExitCode() != 3 {
						t.Errorf("%v: %v: %s", args, err, out)
						return
					}
					for _, want := range []string{"error: ", "the cluster has no quorum: of 3 voters n2 answers, and 2 are needed; n1: " + why + lost[0].Peer, "; n3: " + why + lost[1].Peer, "quorate status"} {
						if !strings.Contains(out, want) {
							t.Errorf("%v does not say %q: %s", args, want, out)
						}
					}
					if args[1] == "list" { // what this node knows
						_, out, _ = strings.Cut(out, "\n")
					}
					if strings.Count(out, "\n") != 1 {
						t.Errorf("%v: it is not one line: %s", args, out)
					}
					//wall: what people are promised without a quorum
					if allowed := clock.Allowed(saidWithin); took > allowed {
						t.Errorf("%v took %s, allowed are %s", args, took, allowed)
					}
					t.Logf("%v: %.1f s", args, took.Seconds())
				})
			}
			all.Wait()
			// The current context is n1.
			began, clock := time.Now(), cluster.StartStopwatch()
			out, err := c.TryQuorate(t, "status", "--kubeconfig", c.Kubeconfig)
			var exit *exec.ExitError
			//wall: what people are promised without a quorum
			if took := time.Since(began); !errors.As(err, &exit) || exit.ExitCode() != 3 || took > clock.Allowed(saidWithin) {
				t.Errorf("status after %s: %v: %s", took, err, out)
			}
		})
	}
}

// TestDevStartWithoutQuorum: a node that is started alone is not waited for until it is
// ready, which it cannot be; with the second one both are.
func TestDevStartWithoutQuorum(t *testing.T) {
	cluster.SkipInShort(t, "it measures how long a fault lasts")
	c := cluster.Start(t, 3)
	c.Quorate(t, "dev", "stop", "--data-dir", c.Dir)
	began := time.Now()
	out := c.Quorate(t, "dev", "start", "n1", "--data-dir", c.Dir)
	took := time.Since(began)
	c.Reread(t)
	want := fmt.Sprintf("n1 serves (pid %d)\nThe cluster has no quorum yet: of 3 voters n1 runs, and 2 are needed; n2 is stopped, n3 is stopped\nStart the rest:  %s dev start n2 n3 --data-dir %s\n",
		c.Node(t, "n1").PID, cluster.Binary(), c.Dir)
	if out != want {
		t.Errorf("%q, want %q", out, want)
	}
	//wall: what people are promised without a quorum
	if took > 30*time.Second {
		t.Errorf("it took %s", took)
	}
	if out, err := c.TryQuorate(t, "dev", "status", "--data-dir", c.Dir); err == nil || !strings.Contains(out, "not ready: read-index") {
		t.Errorf("its status: %v %s", err, out)
	}
	// What it has from before it gives to who takes any state, and to nobody else.
	for query, code := range map[string]int{"?resourceVersion=0": http.StatusOK, "": http.StatusInternalServerError} {
		if got, answer := c.Node(t, "n1").Send(t, http.MethodGet, "/api/v1/namespaces/default"+query, ""); got != code {
			t.Errorf("a get%s: %d %s, want %d", query, got, answer, code)
		}
	}
	if out := c.Quorate(t, "dev", "start", "n3", "--data-dir", c.Dir); !strings.Contains(out, "n3 is ready (pid ") {
		t.Errorf("the second one: %s", out)
	}
	c.Node(t, "n1").AwaitReady(t)

	// One that is frozen may go on at any time: it is waited for, and the wait says so.
	c.Reread(t)
	must.OK(t, syscall.Kill(c.Node(t, "n1").PID, syscall.SIGSTOP))
	c.Quorate(t, "dev", "stop", "n3", "--data-dir", c.Dir)
	ctx, cancel := context.WithTimeout(t.Context(), cluster.CommandWithin)
	t.Cleanup(cancel)
	said, err := os.Create(filepath.Join(c.Dir, "said"))
	must.OK(t, err)
	defer said.Close()
	start := c.Command(ctx, "dev", "start", "n3", "--data-dir", c.Dir)
	start.Stdout, start.Stderr = said, said
	must.OK(t, start.Start())
	says := func(what string) {
		t.Helper()
		cluster.Await(t, 30*time.Second, what, func() string {
			b, err := os.ReadFile(said.Name())
			if err != nil || !strings.Contains(string(b), what) {
				return fmt.Sprintf("%s %v", b, err)
			}
			return ""
		})
	}
	says("waiting for n3: not ready: read-index, poststarthook/rbac/bootstrap-roles; n1: no answer from ") // it asks for its roles with a quorum
	must.OK(t, syscall.Kill(c.Node(t, "n1").PID, syscall.SIGCONT))
	if err := start.Wait(); err != nil {
		t.Error(err)
	}
	says("n3 is ready (pid ")
}
