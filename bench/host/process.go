// Package host reads what a report must say of the machine that it was made on, and
// what processes have cost it.
package host

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// tick is the unit of CPU times in /proc: USER_HZ is 100 on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// CPUTimes returns the user and system time that each process has spent.
func CPUTimes(pids []int) ([]time.Duration, error) {
	times := make([]time.Duration, len(pids))
	for i, pid := range pids {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return nil, fmt.Errorf("read the CPU time of process %d: %w", pid, err)
		}
		if times[i], err = parseStat(raw); err != nil {
			return nil, fmt.Errorf("read the CPU time of process %d: %w", pid, err)
		}
	}
	return times, nil
}

// parseStat reads utime and stime, fields 14 and 15, counted behind the command
// name, which may itself hold spaces and parentheses.
func parseStat(raw []byte) (time.Duration, error) {
	end := bytes.LastIndexByte(raw, ')')
	fields := bytes.Fields(raw[end+1:])
	if end < 0 || len(fields) < 13 {
		return 0, fmt.Errorf("unexpected stat %q", raw)
	}
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("unexpected stat %q: %w", raw, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * tick, nil
}

// ResidentMemory returns the sum of the processes' resident memory in bytes.
func ResidentMemory(pids []int) (int64, error) {
	var sum int64
	for _, pid := range pids {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		if err != nil {
			return 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
		}
		var size, resident int64
		if _, err := fmt.Sscan(string(raw), &size, &resident); err != nil {
			return 0, fmt.Errorf("read the memory of process %d: unexpected statm %q: %w", pid, raw, err)
		}
		sum += resident * int64(os.Getpagesize())
	}
	return sum, nil
}

// Memory is what processes occupy together, in bytes.
type Memory struct {
	// Resident counts a page once for each process that has it, as tools do that list processes.
	Resident int64
	// Proportional counts it once for all of them: nodes of one program share its pages. Of these
	// pages Anonymous are none of files: the kernel cannot take them back. Both are zero where the kernel
	// does not say them, of the processes of others.
	Proportional, Anonymous int64
}

// MemoryOf returns what the processes occupy.
func MemoryOf(pids []int) (m Memory, err error) {
	if m.Resident, err = ResidentMemory(pids); err != nil {
		return m, err
	}
	var sum Memory
	for _, pid := range pids {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			return m, nil
		}
		sum.add(raw)
	}
	m.Proportional, m.Anonymous = sum.Proportional, sum.Anonymous
	return m, nil
}

// add adds what smaps_rollup says.
func (m *Memory) add(raw []byte) {
	for line := range bytes.Lines(raw) {
		f := bytes.Fields(line)
		if len(f) != 3 || string(f[2]) != "kB" {
			continue
		}
		n, err := strconv.ParseInt(string(f[1]), 10, 64)
		if err != nil {
			continue
		}
		switch string(f[0]) {
		case "Pss:":
			m.Proportional += n << 10
		case "Anonymous:":
			m.Anonymous += n << 10
		}
	}
}
