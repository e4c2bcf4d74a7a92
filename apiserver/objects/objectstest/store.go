package objectstest

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/access/rbac"
	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/objects/builtin"
	"github.com/quorate/quorate/apiserver/objects/builtin/service"
	"github.com/quorate/quorate/apiserver/types/crd"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/wire/request"
	"github.com/quorate/quorate/consistency"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/memstore"
	"github.com/quorate/quorate/raftstore/mvcc"
	"github.com/quorate/quorate/raftstore/view"
)

const (
	// maxObject is how much an object may have, in bytes.
	maxObject = 64 << 10
	// large is more.
	large = 70_000
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// Options are what the stores of tests differ in.
type Options struct {
	// Authorizer decides what users may do. Nil: the roles in the store do, as on a node.
	Authorizer auth.Authorizer
	// Kinds is what some kinds need besides the store. Its Roles are always those in the store;
	// the default of its addresses and node ports is that of a server.
	Kinds builtin.Config
	// Admission are the plugins that are asked of every write, made for the store. Nil: none are.
	Admission func(store view.Store, authorizer auth.Authorizer) []admission.Named
	// Plugin is what is asked by lines "admit", made for the store each time.
	Plugin func(store view.Store) admission.Plugin
	// Now is the time that objects get. Nil: it is noon of January 1, 2026.
	Now func() time.Time
	// Panicked is told of panics that were contained. Nil: they fail the test.
	Panicked func()
	// Before is called before each write is proposed, which then finds what it has done. Nil:
	// nothing is.
	Before func(mem *memstore.Store, w *proto.Write)
}

// Store is a store of objects on a store in memory, empty at first. It ends with its test.
type Store struct {
	*objects.Store
	Memory *memstore.Store
	// Definitions are the kinds that are served, with those that the store defines.
	Definitions *crd.Registry

	lag *lagging
}

// NewStore returns a store of objects for a test.
func NewStore(t testing.TB, o Options) *Store {
	t.Helper()
	mem := memstore.New()
	lag := &lagging{Store: mem, before: o.Before}
	reader := consistency.NewReader(mem, consistency.Options{Grace: -1, UnconfirmedTimeout: 100 * time.Millisecond})
	life, end := context.WithCancel(context.Background())
	t.Cleanup(func() {
		end()
		reader.Close()
		if err := mem.Close(); err != nil {
			t.Errorf("close store: %v", err)
		}
	})
	registry, err := kinds.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	definitions, roles := crd.New(lag, registry, log), rbac.New(lag, log)
	if o.Authorizer == nil {
		o.Authorizer = auth.Roles(roles, roles.Empty)
	}
	if len(o.Kinds.ServiceBlocks) == 0 {
		o.Kinds.ServiceBlocks = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}
	}
	if o.Kinds.ServicePorts == (service.PortRange{}) {
		o.Kinds.ServicePorts = service.DefaultPorts
	}
	o.Kinds.Roles = roles
	if o.Now == nil {
		o.Now = func() time.Time { return noon }
	}
	panicked := func(k *request.Kind) {
		if o.Panicked == nil {
			t.Errorf("a panic: %v", k)
			return
		}
		o.Panicked()
	}
	var chain admission.Interface
	if o.Admission != nil {
		chain = admission.NewChain(o.Admission(lag, o.Authorizer), nil)
	}
	return &Store{Memory: mem, Definitions: definitions, lag: lag, Store: objects.NewStore(objects.Config{
		Storage: lag, Reads: reads{reader, lag}, Kinds: definitions.Current, Authorizer: o.Authorizer, Admission: chain,
		Strategies: builtin.Strategies(o.Kinds), Custom: &builtin.Custom, WatchTable: lag.watchTable,
		Life: life, GarbageCollector: true, EventTTL: time.Hour, MaxObject: maxObject, MaxWrite: 10 * time.Second,
		Retried: func(*request.Kind) {}, Panicked: panicked, Log: log, Now: o.Now,
	})}
}

// lagging is a store that may have nothing yet, until a read or a write brings it up to date.
type lagging struct {
	*memstore.Store
	behind atomic.Pointer[mvcc.State] // nil: it has everything
	before func(mem *memstore.Store, w *proto.Write)
}

func (l *lagging) State() *mvcc.State {
	if s := l.behind.Load(); s != nil {
		return s
	}
	return l.Store.State()
}

func (l *lagging) Propose(ctx context.Context, w *proto.Write) (mvcc.Result, error) {
	if l.before != nil {
		l.before(l.Store, w)
	}
	r, err := l.Store.Propose(ctx, w)
	l.behind.Store(nil) // the entry, and all before it, was applied here
	return r, err
}

// watchTable says when a table may have changed, as the server does.
func (l *lagging) watchTable(table string) (<-chan struct{}, func(), error) {
	w, err := l.Watch(table, l.Applied(), mvcc.Interest{})
	if err != nil {
		return nil, nil, fmt.Errorf("watch %s: %w", table, err)
	}
	return w.Wake(), w.Close, nil
}

// reads bring what lags up to date.
type reads struct {
	*consistency.Reader
	of *lagging
}

func (r reads) Await(ctx context.Context, p consistency.Plan) (proto.Revision, error) {
	r.of.behind.Store(nil)
	return r.Reader.Await(ctx, p)
}
