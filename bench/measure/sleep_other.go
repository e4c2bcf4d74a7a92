//go:build !linux

package measure

import "time"

func sleepExactly(d time.Duration) { time.Sleep(d) }
