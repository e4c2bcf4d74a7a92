package objects

import (
	"sync"

	"github.com/quorate/quorate/raftstore/mvcc"
)

// eachWorkers is how many objects are dealt with at a time, so that their log entries
// share fsyncs.
const eachWorkers = 16

// Each calls f for each version, many at a time. The first error ends it.
func Each(versions []*mvcc.Version, f func(v *mvcc.Version) error) error {
	var (
		mu     sync.Mutex
		next   int
		failed error
		wg     sync.WaitGroup
	)
	take := func() int {
		mu.Lock()
		defer mu.Unlock()
		if failed != nil || next == len(versions) {
			return -1
		}
		next++
		return next - 1
	}
	for range min(eachWorkers, len(versions)) {
		wg.Go(func() {
			for i := take(); i >= 0; i = take() {
				if err := f(versions[i]); err != nil {
					mu.Lock()
					if failed == nil {
						failed = err
					}
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return failed
}
