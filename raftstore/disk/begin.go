package disk

import (
	"errors"
	"fmt"
	"time"

	"github.com/quorate/quorate/proto"
)

// ticksPerSecond is how fast the clock of restores runs: a cluster that is restored
// at a time begins at that many revisions per second since 1970. No cluster writes
// as fast on average, so everything that clusters restored before have given out is
// below. In 2026 that is 1.8e14: a twentieth of what may be restored, see maxBegin.
const ticksPerSecond = 100_000

// defaultBump is added to the backup's revision where the clock does not help: more
// than any cluster can have gone on since the backup was made.
const defaultBump = 1_000_000_000

// maxBegin is the highest revision at which a restored cluster may begin: half of
// 2^53, above which clients that read numbers of JSON as floating point lose digits.
const maxBegin = proto.Revision(1) << 52

// earliest is before the first backup was made. A clock that says less was never set.
var earliest = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

var (
	// ErrClock is returned when the clock of the machine cannot be right, so that
	// nothing says where a restored cluster may begin.
	ErrClock = errors.New("this machine's clock cannot be right")
	// ErrTooHigh is returned when a restored cluster would begin above maxBegin.
	ErrTooHigh = errors.New("that is too high: JSON numbers would lose digits before long")
)

// Why says where the first revision of a restored cluster comes from.
type Why int

// Reasons for a first revision.
const (
	// ByClock is the rule: the time, in ticks.
	ByClock Why = iota
	// BehindBackup: the backup is ahead of the clock, so defaultBump was added to its
	// revision. It was bumped by hand once, or a clock is or was wrong.
	BehindBackup
	// ByBump is what the caller said.
	ByBump
)

// begin returns the revision at which a cluster begins that is made of a backup.
//
// What must be exceeded is not in the backup: what its cluster wrote afterwards, and
// what other clusters wrote that were made of the same backup, of a later one, or of
// a backup of such a cluster. A fixed distance from the backup exceeds none of the
// latter: the same backup, restored twice, would begin twice at the same revision.
// The clock does, without memory and on any host. Its rate makes a clock that is set
// back harmless, as long as it is not set back by nearly all of the time since the
// last restore: a cluster uses a small part of the ticks that pass. And restores
// within one second are as far apart as their times, to 10 microseconds.
func begin(backup proto.Revision, now time.Time, bump uint64) (proto.Revision, Why, error) {
	at, why := proto.Revision(0), ByClock
	switch {
	case backup > maxBegin:
		return 0, why, fmt.Errorf("the backup is at revision %d: %w", backup, ErrTooHigh)
	case bump > uint64(maxBegin):
		return 0, why, fmt.Errorf("the revision was to be bumped by %d: %w", bump, ErrTooHigh)
	case bump > 0:
		at, why = backup+proto.Revision(bump), ByBump
	case now.Before(earliest):
		return 0, why, fmt.Errorf("it is %s: %w", now.UTC().Format(time.RFC3339), ErrClock)
	default:
		if at = proto.Revision(now.UnixMicro() / (1_000_000 / ticksPerSecond)); at > maxBegin {
			return 0, why, fmt.Errorf("it is %s: %w", now.UTC().Format(time.RFC3339), ErrClock)
		}
		if at <= backup {
			at, why = backup+defaultBump, BehindBackup
		}
	}
	if at > maxBegin {
		return 0, why, fmt.Errorf("the cluster would begin at revision %d: %w", at, ErrTooHigh)
	}
	return at, why, nil
}
