package cluster

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Usage is what a node's process uses.
type Usage struct {
	Goroutines int
	Live       int64 // bytes of heap and stacks in use after a collection
	Resident   int64 // bytes
	CPU        time.Duration
}

// Usage measures a node, after a garbage collection.
func (n *Node) Usage(t testing.TB) Usage {
	t.Helper()
	u := Usage{CPU: n.CPU(t)} // before what the measuring costs
	first, _, _ := strings.Cut(string(n.MustGet(t, "/debug/pprof/goroutine?debug=1")), "\n")
	if _, err := fmt.Sscanf(first, "goroutine profile: total %d", &u.Goroutines); err != nil {
		t.Fatalf("%q: %v", first, err)
	}
	// The second collection frees what the first one found in pools.
	n.MustGet(t, "/debug/pprof/heap?gc=1&debug=1")
	for lines := bufio.NewScanner(bytes.NewReader(n.MustGet(t, "/debug/pprof/heap?gc=1&debug=1"))); lines.Scan(); {
		name, value, ok := strings.Cut(strings.TrimPrefix(lines.Text(), "# "), " = ")
		if !ok {
			continue
		}
		value, _, _ = strings.Cut(value, " / ")
		switch name {
		case "HeapAlloc", "Stack":
			bytes, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				t.Fatalf("%q: %v", lines.Text(), err)
			}
			u.Live += bytes
		}
	}
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", n.PID))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(statm))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	u.Resident = pages * int64(os.Getpagesize())
	return u
}

// CPU is the processor time that a node's process has used.
func (n *Node) CPU(t testing.TB) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.PID))
	if err != nil {
		t.Fatal(err)
	}
	// The name in parentheses may contain blanks; user and system time are the 14th
	// and 15th field, in hundredths of a second.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	var ticks int64
	for _, f := range fields[11:13] {
		v, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		ticks += v
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
