package host

import (
	"fmt"
	"runtime"
)

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
