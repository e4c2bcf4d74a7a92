package disk

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// TestDemand: a flush never takes more pages behind the last one than were counted. So no page is written where
// nothing is allocated.
func TestDemand(t *testing.T) {
	rounds := 400
	if testing.Short() {
		rounds = 60
	}
	for name, size := range map[string]func(*rand.Rand) int{
		"tiny":      func(*rand.Rand) int { return 1 },
		"usual":     func(rng *rand.Rand) int { return 300 + rng.IntN(2000) },
		"a page":    func(rng *rand.Rand) int { return 3500 + rng.IntN(1000) },
		"half":      func(rng *rand.Rand) int { return 1900 + rng.IntN(300) },
		"long":      func(rng *rand.Rand) int { return 10_000 + rng.IntN(50_000) },
		"some long": func(rng *rand.Rand) int { return []int{100, 100, 100, 100, 30_000}[rng.IntN(5)] },
	} {
		for _, order := range []string{"oldest", "any"} {
			t.Run(fmt.Sprintf("%s, %s go", name, order), func(t *testing.T) {
				// Next to no reserve: only the counted pages are allocated.
				db := mustOpen(t, t.TempDir(), Options{FlushEvery: time.Hour, Reserve: 1, Fatal: noFatal(t)})
				rng := rand.New(rand.NewPCG(5, 6))
				var live []proto.Revision
				next := proto.Revision(0)
				for range rounds {
					var b Batch
					for range rng.IntN(60) {
						next++
						b.Added = append(b.Added, Added{"t", (&mvcc.Version{Key: "k", Revision: next, CreateRevision: 1}).SetValue(make([]byte, size(rng)))})
					}
					for n := min(len(live), rng.IntN(60)); n > 0; n-- {
						i := 0
						if order == "any" {
							i = rng.IntN(len(live))
						}
						b.Removed = append(b.Removed, live[i])
						live = append(live[:i], live[i+1:]...)
					}
					for _, a := range b.Added {
						live = append(live, a.Version.Revision)
					}
					next++
					b.State = &proto.StateRecord{Applied: uint64(next)}
					db.Record(b)
					must.OK(t, db.Sync())
					if behind, _ := db.Room(); behind == 0 {
						t.Fatalf("at %d: %d bytes, all of them pages", next, db.file.end)
					}
				}
			})
		}
	}
}
