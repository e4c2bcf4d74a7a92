package playground

import "syscall"

// dieWithParent lets the kernel kill a child when its parent is gone.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
