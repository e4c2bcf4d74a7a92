package rbac

import "hash/maphash"

// shards of a frozen map: a change copies one of them.
const shards = 256

var seed = maphash.MakeSeed()

// frozen is an immutable map. A draft makes a changed copy, which shares all the
// shards that it did not touch.
type frozen[K comparable, V any] struct {
	shard [shards]map[K]V
}

func shardOf[K comparable](k K) uint8 { return uint8(maphash.Comparable(seed, k)) }

// get returns the zero value for a key that is not there, also of a nil map.
func (f *frozen[K, V]) get(k K) (v V) {
	if f == nil {
		return v
	}
	return f.shard[shardOf(k)][k]
}

// draft is a frozen map in the making.
type draft[K comparable, V any] struct {
	next *frozen[K, V]
	own  [shards]bool // copied since the draft began
}

func edit[K comparable, V any](f *frozen[K, V]) *draft[K, V] {
	d := &draft[K, V]{next: new(frozen[K, V])}
	if f != nil {
		d.next.shard = f.shard
	}
	return d
}

func (d *draft[K, V]) get(k K) V { return d.next.get(k) }

func (d *draft[K, V]) set(k K, v V) { d.writable(k)[k] = v }

func (d *draft[K, V]) delete(k K) { delete(d.writable(k), k) }

func (d *draft[K, V]) writable(k K) map[K]V {
	i := shardOf(k)
	if !d.own[i] {
		m := make(map[K]V, len(d.next.shard[i])+1)
		for k, v := range d.next.shard[i] {
			m[k] = v
		}
		d.next.shard[i], d.own[i] = m, true
	}
	return d.next.shard[i]
}
