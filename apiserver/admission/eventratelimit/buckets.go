package eventratelimit

import (
	"container/list"
	"crypto/sha256"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// buckets are the token buckets of one limit. There are at most size of them: the one that
// was asked longest ago is forgotten for a new one. They are kept by a hash of their keys,
// because clients choose keys, and as long ones as an Event may have.
type buckets struct {
	size  int
	qps   rate.Limit
	burst int

	mu    sync.Mutex
	byKey map[hash]*list.Element // of order
	order list.List              // of *bucket: the front was asked last
}

type hash [sha256.Size]byte

type bucket struct {
	key    hash
	tokens *rate.Limiter
}

func newBuckets(l *limit) *buckets {
	return &buckets{size: l.buckets(), qps: rate.Limit(l.QPS), burst: int(l.Burst), byKey: map[hash]*list.Element{}}
}

// take takes a token from the bucket of a key, if it has one.
func (b *buckets) take(key string, now time.Time) bool {
	sum := sha256.Sum256([]byte(key))
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.byKey[sum]
	if e == nil {
		if b.order.Len() >= b.size {
			last := b.order.Back()
			delete(b.byKey, b.order.Remove(last).(*bucket).key)
		}
		e = b.order.PushFront(&bucket{sum, rate.NewLimiter(b.qps, b.burst)})
		b.byKey[sum] = e
	}
	b.order.MoveToFront(e)
	return e.Value.(*bucket).tokens.AllowN(now, 1)
}
