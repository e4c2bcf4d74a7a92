package cluster

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// PlantedProgram builds the program with the bugs of test/harness/planted in it. QUORATE_PLANTED
// names the one that a process has.
func PlantedProgram(t testing.TB) string {
	t.Helper()
	root, err := Repository()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(RunDir(), "quorate-planted")
	build := exec.Command("go", "run", "./test/harness/planted/overlay", "-build", program)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build with planted bugs: %v\n%s", err, out)
	}
	return program
}

// StartPlanted is Start of nodes that all have a bug. program is PlantedProgram's.
func StartPlanted(t testing.TB, nodes int, program, bug string) *Cluster {
	t.Helper()
	c := Start(t, nodes)
	sound := c.Nodes()
	c.Kill(t, sound...)
	c.Forget(sound...)
	for _, n := range sound {
		port, err := strconv.Atoi(n.API[strings.LastIndex(n.API, ":")+1:])
		if err != nil {
			t.Fatal(err)
		}
		c.LaunchProgram(t, program, []string{"QUORATE_PLANTED=" + bug}, n.Name, port, "--token-file", filepath.Join(c.Dir, "token"))
	}
	for _, n := range c.Nodes() {
		n.AwaitReady(t)
	}
	return c
}
