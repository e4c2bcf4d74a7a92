package host

import (
	"os"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	const rest = " S 1 2 3 0 -1 4194560 100 0 0 0 123 45 6 7 20 0 9 0 1000 2000 300"
	for stat, want := range map[string]time.Duration{
		"42 (quorate)" + rest:       1680 * time.Millisecond,
		"42 (a ) b) (c)" + rest:     1680 * time.Millisecond,
		"42 (quorate) S 1 2 3":      -1,
		"":                          -1,
		"42 (q) S 1 2 3 0 -1 4 1 0": -1,
	} {
		got, err := parseStat([]byte(stat))
		if (err != nil) != (want < 0) || err == nil && got != want {
			t.Errorf("%q: %v, %v, want %v", stat, got, err, want)
		}
	}
	// Our own process has spent something and occupies something.
	if own, err := CPUTimes([]int{os.Getpid()}); err != nil || len(own) != 1 {
		t.Errorf("own CPU time: %v, %v", own, err)
	}
	if n, err := ResidentMemory([]int{os.Getpid()}); err != nil || n < 1<<20 {
		t.Errorf("own memory: %d, %v", n, err)
	}
}

// TestMachine: what a report says of the machine is there.
func TestMachine(t *testing.T) {
	if k, p := Kernel(), Processor(); k == "" || p == "" {
		t.Errorf("kernel %q, processor %q", k, p)
	}
	if f := FileSystem("/proc"); f != "proc" {
		t.Errorf("the file system of /proc is %q", f)
	}
	if f := FileSystem(t.TempDir()); f == "unknown" || f == "proc" {
		t.Errorf("the file system of the temporary directory is %q", f)
	}
	if f := FileSystem("/nonexistent"); f != "unknown" {
		t.Errorf("the file system of nothing is %q", f)
	}
	if LoadAverage() < 0 {
		t.Error("a negative load average")
	}
}

func TestMemory(t *testing.T) {
	var m Memory
	for _, raw := range []string{
		"00400000-7ffd ---p 00000000 00:00 0    [rollup]\nRss:               81144 kB\nPss:               30 kB\nPss_Anon:          7 kB\nAnonymous:         20 kB\n",
		"Pss: x kB\nPss: 1\n\nAnonymous: 5 kB\nPss:   10 kB",
	} {
		m.add([]byte(raw))
	}
	if m.Proportional != 40<<10 || m.Anonymous != 25<<10 {
		t.Errorf("%+v", m)
	}
	// Of our own process.
	if m, err := MemoryOf([]int{os.Getpid()}); err != nil || m.Resident < 1<<20 || m.Anonymous < 100<<10 || m.Anonymous > m.Proportional || m.Proportional > 2*m.Resident {
		t.Errorf("%+v, %v", m, err)
	}
}
