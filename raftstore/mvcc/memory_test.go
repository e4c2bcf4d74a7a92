package mvcc

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/quorate/quorate/proto"
)

// memoryWrite is ConfigMap i as the API stores it, changed for the round-th time: a value of 1 KiB of
// letters that do not repeat, as bench/load has it.
func memoryWrite(i, round int) *proto.Write {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/"
	rng := rand.New(rand.NewPCG(1, uint64(i)))
	data := make([]byte, 1024)
	for j := 0; j < len(data); {
		// Ten letters from each random number: most of the time of a test would go into one for each.
		for x, n := rng.Uint64(), min(len(data), j+10); j < n; j++ {
			data[j] = letters[x&63]
			x >>= 6
		}
	}
	uid := fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", rng.Uint32(), rng.Uint32()&0xffff, rng.Uint32()&0xfff, rng.Uint32()&0xfff, rng.Uint64()&0xffffffffffff)
	head := fmt.Sprintf(`{"metadata":{"name":"cm-%06d","namespace":"bench","uid":"%s","resourceVersion":"`, i, uid)
	tail := fmt.Sprintf(`","creationTimestamp":"2026-11-25T16:%02d:%02dZ","labels":{"app":"app-%d","round":"%d"},"managedFields":[{"manager":"load","operation":"Update",`+
		`"apiVersion":"v1","time":"2026-11-25T16:%02d:%02dZ","fieldsType":"FieldsV1","fieldsV1":{"f:data":{".":{},"f:value":{}},"f:metadata":{"f:labels":`+
		`{".":{},"f:app":{},"f:round":{}}}}}]},"data":{"value":"%s"}}`, i/3600%60, i/60%60, i%100, round, i/3600%60, (i+round)/60%60, data)
	return &proto.Write{
		Table: "core/configmaps", Key: fmt.Sprintf("bench/cm-%06d", i), Op: proto.Op_OP_PUT, Value: []byte(head + tail), RevisionOffset: uint32(len(head)), Uid: uid,
		Labels:    []*proto.Attribute{{Name: "app", Value: fmt.Sprint("app-", i%100)}, {Name: "round", Value: fmt.Sprint(round)}},
		RequestId: fmt.Appendf(nil, "%08d%08d", i, round),
	}
}

// BenchmarkMemory says what objects and superseded versions cost on the heap, for each byte of their
// values: as they are written, and packed.
func BenchmarkMemory(b *testing.B) {
	const n, rounds = 20_000, 4
	for b.Loop() {
		l := &log{TB: b, s: New()}
		empty := heapInUse()
		var bytes int64
		write := func(round int) {
			for i := range n {
				w := memoryWrite(i, round)
				bytes += int64(len(w.Value) + 6)
				l.entry(proto.Encode(proto.KindWrite, w))
			}
			l.s.Publish()
		}
		pack := func() {
			for l.s.Pack(l.s.Applied(), l.s.Applied()) {
			}
		}
		write(0)
		b.ReportMetric(float64(heapInUse()-empty)/float64(bytes), "heap/live-byte")
		pack()
		live := heapInUse()
		b.ReportMetric(float64(live-empty)/float64(bytes), "heap/packed-live-byte")
		bytes = 0
		for round := range rounds {
			write(round + 1)
		}
		pack()
		b.ReportMetric(float64(heapInUse()-live)/float64(bytes), "heap/history-byte")
		runtime.KeepAlive(l)
	}
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// BenchmarkAppendValue is what a list pays for a value.
func BenchmarkAppendValue(b *testing.B) {
	l := &log{TB: b, s: New()}
	for i := range 1000 {
		l.entry(proto.Encode(proto.KindWrite, memoryWrite(i, 0)))
	}
	l.s.Publish()
	for _, how := range []string{"raw", "packed"} {
		page, err := l.s.Table("core/configmaps").Range(Query{At: l.s.Applied()})
		if err != nil {
			b.Fatal(err)
		}
		b.Run(how, func(b *testing.B) {
			var room []byte
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				room = page.Versions[i%1000].AppendValue(room[:0])
				i++
			}
			b.SetBytes(int64(len(room)))
		})
		for l.s.Pack(l.s.Applied(), l.s.Applied()) {
		}
	}
}

// BenchmarkPack is what it costs to pack a version.
func BenchmarkPack(b *testing.B) {
	for _, how := range []string{"template", "successor"} {
		b.Run(how, func(b *testing.B) {
			l := &log{TB: b, s: New()}
			for i := range b.N {
				if how == "template" {
					l.entry(proto.Encode(proto.KindWrite, memoryWrite(i, 0)))
				} else {
					l.entry(proto.Encode(proto.KindWrite, memoryWrite(i/100, i%100)))
				}
			}
			l.s.Publish()
			fresh := l.s.Applied()
			if how == "successor" {
				fresh = 0
			}
			b.ResetTimer()
			for l.s.Pack(l.s.Applied(), fresh) {
			}
		})
	}
}
