package parent

import "syscall"

// First is the parent at the first moment at which code of ours runs.
var First = syscall.Getppid()
