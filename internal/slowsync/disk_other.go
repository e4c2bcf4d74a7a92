//go:build !linux || !(amd64 || arm64)

package slowsync

import (
	"errors"
	"os/exec"
	"time"
)

// Disk is not to be had on this system.
type Disk struct{}

var errSystem = errors.New("delay syncs: that needs Linux on amd64 or arm64")

// New fails.
func New() (*Disk, error) { return nil, errSystem }

// Start fails.
func (*Disk) Start(*exec.Cmd) error { return errSystem }

// Delay fails.
func (*Disk) Delay(time.Duration) (int64, error) { return 0, errSystem }

// Close does nothing.
func (*Disk) Close() error { return nil }
