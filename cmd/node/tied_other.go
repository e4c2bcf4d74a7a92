//go:build !linux

package main

import "syscall"

// dieWithParent is not to be had: a parent that is killed leaves its children.
func dieWithParent(*syscall.SysProcAttr) {}
