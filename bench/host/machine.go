package host

import (
	"os"
	"path/filepath"
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
