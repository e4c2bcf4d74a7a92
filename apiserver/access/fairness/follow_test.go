package fairness

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/memstore"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// put stores a value.
func put(t *testing.T, store *memstore.Store, table, key, value string) {
	t.Helper()
	w := &proto.Write{Table: table, Key: key, Op: proto.Op_OP_PUT, Value: []byte(value), Uid: key, RequestId: fmt.Appendf(nil, "%016s", key)}
	if _, err := store.Propose(t.Context(), w); err != nil {
		t.Fatal(err)
	}
}

const (
	oneLevel  = `{"metadata":{"name":%q},"spec":{"type":"Limited","limited":{"nominalConcurrencyShares":5,"limitResponse":{"type":"Reject"}}}}`
	oneSchema = `{"metadata":{"name":%q},"spec":{"priorityLevelConfiguration":{"name":"l"},"matchingPrecedence":1,"rules":[{"subjects":[{"kind":"User","user":{"name":"u"}}],"nonResourceRules":[{"verbs":["*"],"nonResourceURLs":["*"]}]}]}}`
)

// TestView: the configuration is what the tables hold, without what cannot be read; it is read
// again when one of them has changed, and only then.
func TestView(t *testing.T) {
	store := memstore.New()
	t.Cleanup(func() { _ = store.Close() })
	var lines bytes.Buffer
	v := NewView(store, slog.New(slog.NewTextHandler(&lines, nil)))
	names := func() string {
		var out []string
		for _, f := range v.Get().Schemas {
			out = append(out, f.Name)
		}
		out = append(out, "/")
		for _, p := range v.Get().Levels {
			out = append(out, p.Name)
		}
		return strings.Join(out, " ")
	}
	for _, x := range []struct{ table, name, value, want string }{
		{"configmaps", "other", "{}", "/"},
		{Tables[1], "l", fmt.Sprintf(oneLevel, "l"), "/ l"},
		{Tables[0], "f", fmt.Sprintf(oneSchema, "f"), "f / l"},
		{Tables[0], "bad", `{"metadata":{"name":"bad"},"spec":7}`, "f / l"},
		{Tables[0], "g", fmt.Sprintf(oneSchema, "g"), "f g / l"},
	} {
		before := v.Get()
		put(t, store, x.table, x.name, x.value)
		if got := names(); got != x.want {
			t.Errorf("with %s of %s: %q, want %q", x.name, x.table, got, x.want)
		}
		if x.table == "configmaps" && v.Get() != before {
			t.Error("it is read again when another table has changed")
		}
	}
	if want := `msg="an object of flow control cannot be read" resource=flowschemas name=bad`; !strings.Contains(lines.String(), want) {
		t.Errorf("it says %s, want %s", &lines, want)
	}
}

// TestFollow: what is stored comes in force, at the start and when it changes.
func TestFollow(t *testing.T) {
	store := memstore.New()
	t.Cleanup(func() { _ = store.Close() })
	log := slog.New(slog.DiscardHandler)
	put(t, store, Tables[1], "l", fmt.Sprintf(oneLevel, "l"))
	put(t, store, Tables[0], "first", fmt.Sprintf(oneSchema, "first"))
	c := New(10, log)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- c.Follow(ctx, NewView(store, log), func(table string) (<-chan struct{}, func(), error) {
			w, err := store.Watch(table, store.State().Applied(), mvcc.Interest{})
			if err != nil {
				return nil, nil, err
			}
			return w.Wake(), w.Close, nil
		})
	}()
	await := func(want string) {
		t.Helper()
		must.Await(t, 10*time.Second, want, func() string {
			if got := c.Classify(&Request{User: "u", Path: "/x", Verb: "get"}).schema.name; got != want {
				return "the request is of " + got
			}
			return ""
		})
	}
	await("first")
	put(t, store, Tables[0], "earlier", fmt.Sprintf(oneSchema, "earlier"))
	await("earlier")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
