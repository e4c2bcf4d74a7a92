package apiserver

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/apiserver/auth"
	"github.com/quorate/quorate/apiserver/conversion"
	"github.com/quorate/quorate/apiserver/kinds"
	"github.com/quorate/quorate/apiserver/request"
	"github.com/quorate/quorate/apiserver/revise"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// objectConfig of an objectStore. All of it is required but Webhooks.
type objectConfig struct {
	Store revise.Store
	Reads Reads
	// Kinds returns the resources that are served now.
	Kinds      func() *kinds.Registry
	Authorizer auth.Authorizer

	// Strategies are what kinds have as code, by Resource.CodeName; Custom is that of all
	// custom resources.
	Strategies map[string]*strategy
	Custom     *strategy

	// Webhooks convert custom resources between their versions.
	Webhooks *conversion.Caller
	// Life ends with the server, for conversions that no request waits for.
	Life context.Context

	// GarbageCollector, EventTTL: see Config.
	GarbageCollector bool
	EventTTL         time.Duration
	// MaxObject bounds an object as it is stored, in bytes; MaxWrite a write that must not
	// end with its request.
	MaxObject int
	MaxWrite  time.Duration

	// Retried is told of each write that lost a race.
	Retried func(k *request.Kind)
	Log     *slog.Logger
	Now     func() time.Time
}

// objectStore are the objects of the API without HTTP: what operations decide on, and
// write to. Safe for concurrent use.
type objectStore struct {
	cfg    objectConfig
	fields fieldManagers
	// conversions is what webhooks made.
	conversions *conversions
	// tablesOf is of the registry that was served last.
	tablesOf atomic.Pointer[tables]
}

func (s *objectStore) init(cfg objectConfig) {
	s.cfg = cfg
	s.fields.convert = s.convertBetween
	s.conversions = conversion.NewCache[conversionKey, *mvcc.Version](conversionCache)
}
