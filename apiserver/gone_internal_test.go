package apiserver

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// told keeps what it is told of resources that are gone.
type told struct {
	noObserver
	of []string
}

func (t *told) Gone(gvr schema.GroupVersionResource, last bool) {
	t.of = append(t.of, fmt.Sprintf("%s/%s last=%t", gvr.Version, gvr.Resource, last))
}

// TestGoneResources: the observer is told at once, when watches have ended, and when all requests have, unless a resource is
// back.
func TestGoneResources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		served := func(versions ...string) *kinds.Registry {
			var all []*kinds.Resource
			for _, v := range versions {
				all = append(all, &kinds.Resource{Group: "g", Version: v, Kind: "A", Plural: "as"})
			}
			return kinds.NewRegistry(all)
		}
		var g goneResources
		for _, x := range []struct {
			now  *kinds.Registry
			want string
		}{
			{served("v1", "v2"), "[]"},
			{served("v2"), "[v1/as last=false]"},
			{served(), "[v2/as last=true]"},
			{served("v2"), "[]"},
		} {
			var o told
			g.look(x.now, &o)
			g.look(x.now, &o)
			if got := fmt.Sprint(o.of); got != x.want {
				t.Errorf("%s, want %s", got, x.want)
			}
			time.Sleep(time.Second)
		}
		// What comes and goes between two looks.
		g.see(served("v2", "v3"))
		g.see(served("v2"))
		var short told
		g.look(served("v2"), &short)
		if got := fmt.Sprint(short.of); got != "[v3/as last=false]" {
			t.Errorf("between two looks: %s", got)
		}
		delete(g.since, schema.GroupVersionResource{Group: "g", Version: "v3", Resource: "as"})
		for _, again := range goneAgain {
			time.Sleep(again)
			var o told
			g.look(g.before, &o)
			g.look(g.before, &o)
			if got := fmt.Sprint(o.of); got != "[v1/as last=false]" {
				t.Errorf("after %s: %s", again, got)
			}
		}
		if len(g.since) != 0 {
			t.Errorf("in the end %v", g.since)
		}
	})
}
