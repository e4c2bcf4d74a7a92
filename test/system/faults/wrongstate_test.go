package faults

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// ignoredCondition is the planted bug (test/harness/planted) that applies writes whose
// condition does not hold.
const ignoredCondition = "condition-ignored"

// TestWrongState gives one of three nodes a state machine that decides otherwise: it
// must find that out, stop, keep its evidence and refuse to start again; the others go
// on, say so, and are joined by the node that replaces it.
func TestWrongState(t *testing.T) {
	cluster.SkipInShort(t, "it measures how long a fault lasts")
	program := cluster.PlantedProgram(t)
	c := cluster.Start(t, 3)
	broken := c.Others(c.Leader(t))[0]
	sound := c.Others(broken)
	dir := filepath.Join(c.Dir, broken.Name)
	port, err := strconv.Atoi(broken.API[strings.LastIndex(broken.API, ":")+1:])
	must.OK(t, err)
	c.Kill(t, broken)
	c.Forget(broken)
	token := filepath.Join(c.Dir, "token")
	broken = c.LaunchProgram(t, program, []string{"QUORATE_PLANTED=" + ignoredCondition}, broken.Name, port, "--token-file", token)
	broken.AwaitReady(t)

	// Creates of one name that race: the sound state machines refuse all but one.
	for round := range 5 {
		race(t, sound[0], fmt.Sprintf("same-%d", round))
	}
	// Anyone who asks for the status has it compare at once, what it does by itself twice a minute.
	cluster.Await(t, time.Minute, broken.Name+" ends", func() string {
		if !broken.Running() {
			return ""
		}
		body, _, err := broken.Get(t, "/quorate/v1/status")
		return fmt.Sprintf("it runs: %s %v", body, err)
	})
	for _, file := range []string{"state-differs.json", "state.db", "raft.db"} {
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			t.Errorf("the evidence is not kept: %v", err)
		}
	}
	var evidence struct{ NodeID string }
	if raw, err := os.ReadFile(filepath.Join(dir, "state-differs.json")); err != nil || json.Unmarshal(raw, &evidence) != nil || evidence.NodeID == "" {
		t.Fatalf("the evidence names no node: %s (%v)", raw, err)
	}
	again := c.LaunchProgram(t, cluster.Binary(), nil, broken.Name, port, "--token-file", token)
	cluster.Await(t, 20*time.Second, "it refuses to start again", func() string {
		if again.Running() {
			return "it runs"
		}
		return ""
	})
	log, err := os.ReadFile(again.Log)
	if want := "run 'quorate member remove " + evidence.NodeID + "'"; err != nil || !strings.Contains(string(log), want) {
		t.Errorf("%q is not in its log (%v)", want, err)
	}
	c.Forget(broken, again)

	for _, n := range sound {
		if got := n.Metric(t, "quorate_members_with_wrong_state"); got != 1 {
			t.Errorf("%s: quorate_members_with_wrong_state is %v", n.Name, got)
		}
		race(t, n, "after")
	}
	out := c.Admin(t, "status")
	for _, want := range []string{broken.Name + " HAS STOPPED, its state is wrong: at log index", "quorate member remove " + evidence.NodeID} {
		if !strings.Contains(out, want) {
			t.Errorf("status does not say %q:\n%s", want, out)
		}
	}

	// As the message says.
	c.Admin(t, "member", "remove", evidence.NodeID)
	must.OK(t, os.Rename(dir, dir+".old"))
	fresh := c.LaunchProgram(t, cluster.Binary(), nil, broken.Name, port, "--token-file", token, "--join", sound[0].Peer+","+sound[1].Peer)
	fresh.AwaitReady(t)
	cluster.SameStates(t, c)
	for _, n := range c.Nodes() {
		if got := n.Metric(t, "quorate_members_with_wrong_state"); got != 0 {
			t.Errorf("%s: quorate_members_with_wrong_state is %v after the replacement", n.Name, got)
		}
	}
}

// race creates one object eight times at once; one of the creates must be the first.
func race(t *testing.T, n *cluster.Node, name string) {
	t.Helper()
	var tasks sync.WaitGroup
	client := n.Typed(t).CoreV1().ConfigMaps("default")
	for range 8 {
		tasks.Go(func() {
			_, err := client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			if err != nil && !apierrors.IsAlreadyExists(err) {
				t.Errorf("create %s on %s: %v", name, n.Name, err)
			}
		})
	}
	tasks.Wait()
}
