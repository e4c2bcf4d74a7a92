//go:build !linux

package playground

import "syscall"

// dieWithParent is not to be had: a parent that is killed leaves its children.
func dieWithParent(*syscall.SysProcAttr) {}
