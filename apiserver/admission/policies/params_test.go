package policies

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/raftstore/mvcc"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestParamsAreShared: however many decisions read the same parameters at a time, and however
// large these are, there is one decoded object of each.
func TestParamsAreShared(t *testing.T) {
	const decisions = 8
	for _, tc := range []struct {
		name        string
		count, size int
	}{
		{"fewer than are kept", 4, maxParamBytes / 8},
		{"more than are kept", 24, maxParamBytes / 8},
		{"one that is larger than what is kept", 1, maxParamBytes + 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			versions := make([]*mvcc.Version, tc.count)
			value := []byte(strings.Repeat("x", tc.size))
			for i := range versions {
				versions[i] = (&mvcc.Version{Key: fmt.Sprint("n/", i)}).SetValue(value)
			}
			var decoded atomic.Int64
			p := newParams(Config{Decode: func(_ context.Context, _ *kinds.Resource, all []*mvcc.Version) ([]tree.Object, error) {
				decoded.Add(int64(len(all)))
				out := make([]tree.Object, len(all))
				for i, v := range all {
					out[i] = tree.Object{"metadata": tree.Object{"name": v.Key}}
				}
				return out, nil
			}})
			res := &kinds.Resource{}
			read := make([][]runtime.Object, decisions)
			var wg sync.WaitGroup
			for i := range read {
				wg.Go(func() {
					var err error
					read[i], err = (&paramReader{params: p, ctx: t.Context(), res: res}).decode(versions)
					if err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if n := decoded.Load(); n != int64(tc.count) {
				t.Errorf("%d objects were decoded for %d decisions, want each of the %d once", n, decisions, tc.count)
			}
			for i, all := range read {
				if len(all) != tc.count {
					t.Fatalf("decision %d has read %d objects, want %d", i, len(all), tc.count)
				}
				for j, obj := range all {
					if name := obj.(*unstructured.Unstructured).GetName(); name != versions[j].Key || obj != read[0][j] {
						t.Fatalf("decision %d has read %q at %d, want the object %q of all", i, name, j, versions[j].Key)
					}
				}
			}
			if p.bytes > maxParamBytes {
				t.Errorf("%d bytes are kept, want at most %d", p.bytes, maxParamBytes)
			}
		})
	}
}

// TestParamsAwaitTheirContext: a decision that waits for another one's parameters waits no longer
// than its own time.
func TestParamsAwaitTheirContext(t *testing.T) {
	began, end := make(chan struct{}), make(chan struct{})
	var once sync.Once
	p := newParams(Config{Decode: func(context.Context, *kinds.Resource, []*mvcc.Version) ([]tree.Object, error) {
		once.Do(func() { close(began) })
		<-end
		return []tree.Object{{}}, nil
	}})
	versions, res := []*mvcc.Version{(&mvcc.Version{Key: "n/a"}).SetValue(make([]byte, maxParamBytes))}, &kinds.Resource{}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(end)
	wg.Go(func() {
		if _, err := (&paramReader{params: p, ctx: t.Context(), res: res}).decode(versions); err != nil {
			t.Error(err)
		}
	})
	<-began
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (&paramReader{params: p, ctx: ctx, res: res}).decode(versions); err == nil {
		t.Error("a decision whose time is over has got parameters, want its context's error")
	}
}
