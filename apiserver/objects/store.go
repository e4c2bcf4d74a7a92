package objects

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/apiserver/access/audit"
	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/objects/storage"
	"github.com/quorate/quorate/apiserver/types/conversion"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/wire/request"
	"github.com/quorate/quorate/consistency"
	"github.com/quorate/quorate/internal/loglimit"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	"github.com/quorate/quorate/raftstore/view"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Config of a Store. All of it is required but Audit, Admission and PodsOfNodes.
type Config struct {
	Storage storage.Interface
	Reads   Reads
	// Kinds returns the resources that are served now.
	Kinds      func() *kinds.Registry
	Authorizer auth.Authorizer

	// Strategies are what kinds have as code, by Resource.CodeName; Custom is that of all
	// custom resources.
	Strategies map[string]*Strategy
	Custom     *Strategy
	// Audit records what the node deletes by itself. Nil: nothing is recorded.
	Audit *audit.Log
	// WatchTable returns a channel that is sent to when a table may have changed, and a
	// function that ends it.
	WatchTable func(table string) (<-chan struct{}, func(), error)
	// Admission may change or refuse writes. Nil: nothing does.
	Admission admission.Interface

	// PodsOfNodes has the Pods by the field spec.nodeName, for lists. Nil: the store makes its own.
	PodsOfNodes *view.FieldIndex

	// Webhooks convert custom resources between their versions.
	Webhooks *conversion.Caller
	// Life ends with the server, for conversions that no request waits for.
	Life context.Context

	// GarbageCollector says that something acts on the finalizers orphan and
	// foregroundDeletion; without it no deletion adds them.
	GarbageCollector bool
	// EventTTL is how long objects of kinds that expire stay after their last write.
	EventTTL time.Duration
	// MaxObject bounds an object as it is stored, in bytes; MaxWrite a write that must not
	// end with its request.
	MaxObject int
	MaxWrite  time.Duration

	// Retried is told of each write that lost a race.
	Retried func(k *request.Kind)
	// Panicked is told of each panic in a goroutine of its own.
	Panicked func(k *request.Kind)
	Log      *slog.Logger
	Now      func() time.Time
}

// Store are the objects of the API without HTTP: what operations decide on, and
// write to. Safe for concurrent use.
type Store struct {
	Config // it does not change

	updater storage.Updater // of writes, but for who is told of their retries
	fields  fieldManagers
	panics  *loglimit.Limiter // of validations and deletes
	// indexes are of tables that are asked for by the value of a field, by their names. They are
	// upstream's indexers.
	indexes map[string]*view.FieldIndex
	// conversions is what webhooks made.
	conversions *conversions
	// tablesOf is of the registry that was served last.
	tablesOf atomic.Pointer[tables]
}

// podsTable has the Pods, of which each kubelet asks for its own.
var podsTable = kinds.BuiltinTable(schema.GroupResource{Resource: "pods"})

// PodsOfNodes returns the index of Pods by the field spec.nodeName.
func PodsOfNodes(store view.Store) *view.FieldIndex {
	return view.NewFieldIndex(store, podsTable, "spec.nodeName")
}

// NewStore returns a store of objects. It starts nothing.
func NewStore(cfg Config) *Store {
	s := &Store{Config: cfg, panics: loglimit.New(time.Minute), conversions: conversion.NewCache[conversionKey, *mvcc.Version](conversionCache)}
	if cfg.PodsOfNodes == nil {
		cfg.PodsOfNodes = PodsOfNodes(cfg.Storage)
	}
	s.indexes = map[string]*view.FieldIndex{podsTable: cfg.PodsOfNodes}
	s.updater = storage.Updater{Store: cfg.Storage, Confirm: s.Confirm}
	s.fields.convert = s.convertAmong
	return s
}

// Reads carries out read plans. *consistency.Reader satisfies it. Safe for
// concurrent use.
type Reads interface {
	// Await returns the revision to read as of, once the local state has it.
	// Errors are those of consistency.Reader.Await.
	Await(ctx context.Context, p consistency.Plan) (proto.Revision, error)
}
