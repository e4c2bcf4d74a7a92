//go:build !linux

package modes

import "time"

func sleepExactly(d time.Duration) { time.Sleep(d) }
