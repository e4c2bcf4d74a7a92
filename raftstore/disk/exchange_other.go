//go:build !linux

package disk

func exchange(string, string, string) error { return errUnsupported }
