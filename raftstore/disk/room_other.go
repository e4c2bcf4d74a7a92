//go:build !linux

package disk

import "os"

func fallocate(*os.File, int64, int64) error { return errUnsupported }

// WriteInPlace does nothing here.
func WriteInPlace(string) error { return nil }

func freeBytes(*os.File) (int64, bool) { return 0, false }

func allocatedBytes(os.FileInfo) int64 { return 0 }
