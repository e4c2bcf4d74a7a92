package plugins

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/suspension"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/raftstore/view"
)

// NewEnv returns what plugins are made of in tests, on a store; change may be nil.
func NewEnv(t testing.TB, store view.Store, authorizer auth.Authorizer, change func(*Config)) *env {
	t.Helper()
	registry, err := kinds.Available()
	must.OK(t, err)
	log := slog.New(slog.DiscardHandler)
	c := Config{
		Store: store, Authorizer: authorizer, Log: log, Suspensions: suspension.NewView(store, time.Now, log),
		Kinds:   func() *kinds.Registry { return registry },
		Confirm: func(context.Context) error { return nil }, NotReadySeconds: 300, UnreachableSeconds: 7,
	}
	if change != nil {
		change(&c)
	}
	return newEnv(c)
}

// One makes a plugin by its row in the table. config is its part of the configuration file, "" if there is none.
func (e *env) One(name, config string) (admission.Plugin, error) {
	i := slices.IndexFunc(table, func(p plugin) bool { return p.name == name })
	var r io.Reader
	if config != "" {
		r = strings.NewReader(config)
	}
	return table[i].make(e, r)
}

// Must is One of a plugin that can be made.
func (e *env) Must(t testing.TB, name, config string) admission.Named {
	t.Helper()
	p, err := e.One(name, config)
	must.OK(t, err)
	return admission.Named{Name: name, Plugin: p}
}
