package host

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// Kernel is the release of the running Linux, or "unknown".
func Kernel() string {
	raw, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(raw))
}

// Processor is the model of the first processor, or "unknown".
func Processor() string {
	raw, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(raw)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// LoadAverage is that of the last minute, or zero where it is unknown.
func LoadAverage() float64 {
	raw, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(raw), " ")
	f, _ := strconv.ParseFloat(first, 64)
	return f
}

// FileSystem is the type of the file system that path lies on, or "unknown".
func FileSystem(path string) string {
	path, err := filepath.EvalSymlinks(path)
	if err != nil || !filepath.IsAbs(path) {
		return "unknown"
	}
	raw, _ := os.ReadFile("/proc/mounts")
	best, kind := "", "unknown"
	for line := range strings.Lines(string(raw)) {
		f := strings.Fields(line)
		if len(f) < 3 || len(f[1]) < len(best) {
			continue
		}
		if at := strings.TrimSuffix(f[1], "/"); path == f[1] || strings.HasPrefix(path, at+"/") {
			best, kind = f[1], f[2]
		}
	}
	return kind
}

// Machine is what a report says of the machine that it was made on.
type Machine struct {
	Go         string  `json:"go"`
	Kernel     string  `json:"kernel"`
	Processor  string  `json:"processor"`
	CPUs       int     `json:"cpus"`
	FileSystem string  `json:"fileSystem"` // of the nodes' data
	LoadAvg    float64 `json:"loadAverageBefore"`
}

// ThisMachine describes this one, and the file system of dir.
func ThisMachine(dir string) Machine {
	return Machine{Go: runtime.Version(), Kernel: Kernel(), Processor: Processor(), CPUs: runtime.NumCPU(), FileSystem: FileSystem(dir), LoadAvg: LoadAverage()}
}

// Line is the machine for people. It is no String: what embeds a Machine is none.
func (m Machine) Line() string {
	return fmt.Sprintf("%s · Linux %s · %d × %s · data on %s", m.Go, m.Kernel, m.CPUs, m.Processor, m.FileSystem)
}
