// Package plugins is the table of all admission plugins: their names, their order and which
// of them are on by default, as kube-apiserver 1.36 has it; and the chain that the flags ask
// for. A plugin itself is a package beside this one.
package plugins

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/policies"
	"github.com/quorate/quorate/apiserver/admission/static"
	"github.com/quorate/quorate/apiserver/admission/suspension"
	"github.com/quorate/quorate/apiserver/admission/upstream"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/state"
	"github.com/quorate/quorate/raftstore/view"
)

// Config says which plugins there are, and what they decide by.
type Config struct {
	// Enable and Disable are names of plugins, beside the defaults. Enable wins.
	Enable, Disable []string
	// File is an AdmissionConfiguration (apiserver.config.k8s.io/v1); empty: none.
	File string
	// CreateNamespace makes a namespace, as the node itself (NamespaceAutoProvision).
	CreateNamespace func(ctx context.Context, name string) error
	// NotReadySeconds and UnreachableSeconds are for how long Pods that do not say it stay on such
	// a node (DefaultTolerationSeconds).
	NotReadySeconds, UnreachableSeconds int64

	Store view.Store
	// Confirm brings the store's state up to date with all writes that were acknowledged
	// before the call.
	Confirm func(context.Context) error
	// Resolve returns the address, host:port, of a Service of the cluster.
	Resolve func(ctx context.Context, namespace, name string, port int32) (string, error)
	// Dial connects to Services, and DialURL to webhooks that a URL names. Nil: the network of this host.
	Dial, DialURL func(ctx context.Context, network, address string) (net.Conn, error)
	// Suspensions are the configurations and policies that are not asked at the moment.
	Suspensions *suspension.View
	// Registerer gets the metrics that plugins have of their own; nil: nobody does.
	Registerer prometheus.Registerer
	Authorizer auth.Authorizer
	// Kinds returns the resources that are served at the time. Convert leads from one version
	// of a resource to another, and Decode reads stored versions as objects of a resource.
	Kinds   func() *kinds.Registry
	Convert upstream.Convert
	Decode  policies.Decode
	// Static is how policies and webhooks come from files.
	Static   static.Files
	Observer admission.Observer // may be nil
	// Loaded is told what New has made. Nil: nothing is.
	Loaded func(Loaded)
	Log    *slog.Logger
}

// Loaded is what a configuration has made.
type Loaded struct {
	Plugins []string // those that are asked, in their order
	// Hash is of the plugins and of what they were told: nodes that have the same one
	// decide alike.
	Hash string
}

// env is what plugins are made of.
type env struct {
	Config
	state      *state.State
	kinds      *upstream.Kinds
	namespaces *upstream.Namespaces
	upstream   *upstream.Server
}

func newEnv(cfg Config) *env {
	e := &env{Config: cfg, state: state.New(cfg.Store), kinds: upstream.NewKinds(cfg.Kinds, cfg.Convert)}
	e.namespaces = upstream.NewNamespaces(e.state, e.Confirm)
	e.upstream = e.server()
	return e
}

// policies is what admission policies are evaluated with.
func (e *env) policies() policies.Config {
	return policies.Config{
		Store: e.Store, State: e.state, Kinds: e.kinds, Namespaces: e.namespaces,
		Authorizer: e.Authorizer, Decode: e.Decode, Suspensions: e.Suspensions, Static: e.Static, Log: e.Log,
	}
}

// plugin is a row of the table.
type plugin struct {
	name string
	on   bool // by default
	// make returns the plugin; config is its part of the configuration file, nil if there is
	// none. Nil: the name is known and does nothing, for the reason given.
	make   func(e *env, config io.Reader) (admission.Plugin, error)
	reason string
}

// simple makes a plugin that has no configuration.
func simple(f func(e *env) admission.Plugin) func(*env, io.Reader) (admission.Plugin, error) {
	return func(e *env, _ io.Reader) (admission.Plugin, error) { return f(e), nil }
}

// ErrUnknown is an unknown name in a flag.
var ErrUnknown = errors.New("no such admission plugin")

// Check reports what is wrong with the names of the flags. Errors: ErrUnknown, and a name
// that is enabled and disabled.
func Check(enable, disable []string) error {
	var errs []error
	for _, list := range []struct {
		flag  string
		names []string
	}{{"enable-admission-plugins", enable}, {"disable-admission-plugins", disable}} {
		for _, name := range list.names {
			if !known(name) {
				errs = append(errs, fmt.Errorf("%s: %w: %q; there are %s", list.flag, ErrUnknown, name, strings.Join(names(func(plugin) bool { return true }), ", ")))
			}
		}
	}
	for _, name := range enable {
		if slices.Contains(disable, name) {
			errs = append(errs, fmt.Errorf("enable-admission-plugins and disable-admission-plugins both name %q", name))
		}
	}
	return errors.Join(errs...)
}

func known(name string) bool {
	return slices.ContainsFunc(table, func(p plugin) bool { return p.name == name })
}

// Defaults are the names of the plugins that are on by default, in their order.
func Defaults() []string { return names(func(p plugin) bool { return p.on }) }

func names(which func(plugin) bool) []string {
	var out []string
	for _, p := range table {
		if which(p) {
			out = append(out, p.name)
		}
	}
	return out
}

// New returns the chain that a configuration asks for. Errors: those of Check, of the file, and
// of plugins that cannot use their configuration.
func New(cfg Config) (*admission.Chain, error) {
	if err := Check(cfg.Enable, cfg.Disable); err != nil {
		return nil, err
	}
	configs, err := readFile(cfg.File)
	if err != nil {
		return nil, fmt.Errorf("admission configuration: %w", err)
	}
	e := newEnv(cfg)
	chain := []admission.Named{{Name: "AdmissionSuspensions", Plugin: cfg.Suspensions.Plugin()}}
	var all Loaded
	sum := sha256.New()
	for _, p := range table {
		raw, configured := configs[p.name]
		if !cfg.asks(p) {
			if configured {
				cfg.Log.Warn("an admission plugin is off: what the file says to it has no effect", "plugin", p.name, "file", cfg.File)
			}
			continue
		}
		var config io.Reader
		if configured {
			config = bytes.NewReader(raw)
		}
		made, err := p.make(e, config)
		if err != nil {
			return nil, fmt.Errorf("admission plugin %s: %w", p.name, err)
		}
		chain = append(chain, admission.Named{Name: p.name, Plugin: made})
		all.Plugins = append(all.Plugins, p.name)
		fmt.Fprintf(sum, "%s %d %s\n", p.name, len(raw), raw)
	}
	all.Hash = hex.EncodeToString(sum.Sum(nil)[:6])
	cfg.Log.Info("admission plugins", "plugins", strings.Join(all.Plugins, ","), "hash", all.Hash)
	if cfg.Loaded != nil {
		cfg.Loaded(all)
	}
	return admission.NewChain(chain, cfg.Observer), nil
}

// asks reports whether a plugin is one of the chain's.
func (c *Config) asks(p plugin) bool {
	return p.make != nil && (slices.Contains(c.Enable, p.name) || p.on && !slices.Contains(c.Disable, p.name))
}
