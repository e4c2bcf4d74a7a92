package disk

import (
	"bytes"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
)

// noon is a time with a round number of ticks.
var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

const noonTicks = 1795348800 * ticksPerSecond

func TestBegin(t *testing.T) {
	for name, c := range map[string]struct {
		backup proto.Revision
		now    time.Time
		bump   uint64
		want   proto.Revision
		why    Why
		err    error
	}{
		"a cluster that was never restored":                   {backup: 700, now: noon, want: noonTicks},
		"the same a second later":                             {backup: 700, now: noon.Add(time.Second), want: noonTicks + 100_000},
		"the same 10 microseconds later":                      {backup: 700, now: noon.Add(10 * time.Microsecond), want: noonTicks + 1},
		"another zone":                                        {backup: 700, now: noon.In(time.FixedZone("x", 3600)), want: noonTicks},
		"a restored cluster, one second after its restore":    {backup: noonTicks + 5000, now: noon.Add(time.Second), want: noonTicks + 100_000},
		"a restored cluster, and the clock was set back":      {backup: noonTicks + 5000, now: noon.Add(-time.Hour), want: noonTicks + 5000 + defaultBump, why: BehindBackup},
		"a backup at the present tick":                        {backup: noonTicks, now: noon, want: noonTicks + defaultBump, why: BehindBackup},
		"a backup that was bumped by hand":                    {backup: 1 << 50, now: noon, want: 1<<50 + defaultBump, why: BehindBackup},
		"bumped by hand":                                      {backup: 700, now: noon, bump: 5, want: 705, why: ByBump},
		"bumped by hand beside a clock that was never set":    {backup: 700, now: time.Unix(0, 0), bump: 5, want: 705, why: ByBump},
		"a clock that was never set":                          {backup: 700, now: time.Unix(1000, 0), err: ErrClock},
		"a clock before 1970":                                 {backup: 700, now: time.Unix(-1000, 0), err: ErrClock},
		"a clock centuries ahead":                             {backup: 700, now: noon.AddDate(400, 0, 0), want: proto.Revision(noon.AddDate(400, 0, 0).Unix()) * ticksPerSecond},
		"a clock ages ahead":                                  {backup: 700, now: noon.AddDate(4000, 0, 0), err: ErrClock},
		"a backup where JSON numbers are about to be inexact": {backup: maxBegin, now: noon, err: ErrTooHigh},
		"a backup above that":                                 {backup: maxBegin + 1, now: noon, err: ErrTooHigh},
		"a bump to above that":                                {backup: 700, now: noon, bump: uint64(maxBegin), err: ErrTooHigh},
		"a bump that would overflow":                          {backup: 700, now: noon, bump: 1<<64 - 1, err: ErrTooHigh},
	} {
		t.Run(name, func(t *testing.T) {
			at, why, err := begin(c.backup, c.now, c.bump)
			if !errors.Is(err, c.err) {
				t.Fatalf("%v, want %v", err, c.err)
			}
			if c.err == nil && (at != c.want || why != c.why) {
				t.Errorf("%d (%d), want %d (%d)", at, why, c.want, c.why)
			}
		})
	}
	if maxBegin+maxBegin > 1<<53 {
		t.Error("half of the exact numbers are to be left for what the cluster writes")
	}
}

// TestRestoreAgain restores the same backup, and an older one after a newer one:
// what operators do who look at what they have restored and want something else.
func TestRestoreAgain(t *testing.T) {
	older, newer := backup(t, 600), backup(t, 700)
	last := proto.Revision(0)
	for i, b := range [][]byte{newer, newer, older, newer, older, older} {
		done, err := RestoreBackup(filepath.Join(t.TempDir(), "n"), bytes.NewReader(b), RestoreOptions{Cluster: "new", Configuration: testServers})
		must.OK(t, err)
		if at := proto.Revision(done.Applied); at <= last || done.Floor != uint64(at) || done.Why != ByClock {
			t.Fatalf("restore %d begins at %d (%v), the one before at %d", i, at, done, last)
		} else {
			last = at
		}
	}
}

// TestRestoreRefusedByTheClock leaves a directory that can be used once the clock is set.
func TestRestoreRefusedByTheClock(t *testing.T) {
	dir := t.TempDir()
	_, err := RestoreBackup(dir, bytes.NewReader(backup(t, 600)), RestoreOptions{Cluster: "new", Configuration: testServers, Now: time.Unix(1, 0)})
	if !errors.Is(err, ErrClock) {
		t.Fatal(err)
	}
	if names := fileNames(t, dir); len(names) != 0 {
		t.Errorf("%v is left", names)
	}
}
