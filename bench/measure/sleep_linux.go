package measure

import (
	"time"

	"golang.org/x/sys/unix"
)

// sleepExactly sleeps in the kernel, to about 50 microseconds. It blocks its thread.
func sleepExactly(d time.Duration) {
	t := unix.NsecToTimespec(d.Nanoseconds())
	// Woken early by a signal, the caller looks at the clock again.
	_ = unix.Nanosleep(&t, nil)
}
