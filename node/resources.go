package node

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"

	"github.com/quorate/quorate/apiserver/access/audit"
	"github.com/quorate/quorate/apiserver/objects/builtin/service"
	"github.com/quorate/quorate/apiserver/observe/features"
	"github.com/quorate/quorate/apiserver/observe/metrics"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"k8s.io/component-base/featuregate"
)

// checkResources checks what says which API is served and how it is watched.
func (c *Config) checkResources(bad *mistakes) {
	if _, err := features.New(c.FeatureGates); err != nil {
		bad.errs = append(bad.errs, err)
	} else if _, err := c.registry(); err != nil {
		bad.errs = append(bad.errs, err)
	}
	if err := metrics.CheckShowHidden(c.ShowHidden, kinds.Minor); err != nil {
		bad.errs = append(bad.errs, err)
	}
	if (c.AuditPolicy == "") != (c.AuditPath == "") {
		bad.add("audit-policy-file and audit-log-path need each other")
	}
	for _, x := range []struct {
		name  string
		value int
	}{{"audit-log-maxsize", c.AuditMaxSize}, {"audit-log-maxbackup", c.AuditMaxBackups}, {"audit-log-maxage", c.AuditMaxAge}} {
		if x.value < 0 {
			bad.add("%s: %d: must not be negative", x.name, x.value)
		}
	}
}

// registry is the resources that this node serves.
func (c *Config) registry() (*kinds.Registry, error) {
	all, err := kinds.Available()
	if err != nil {
		return nil, err
	}
	gates, err := features.New(c.FeatureGates)
	if err != nil {
		return nil, err
	}
	return kinds.ParseEnablement(c.RuntimeConfig).Apply(all, func(gate string) bool { return gates.Enabled(featuregate.Feature(gate)) })
}

// openResources decides what is served and says so.
func (n *Node) openResources(context.Context) (err error) {
	if n.kinds, err = n.cfg.registry(); err != nil {
		return err
	}
	if n.serviceBlocks, err = service.ParseBlocks(n.cfg.ServiceClusterIPRange); err != nil {
		return err
	}
	if n.servicePorts, err = service.ParsePortRange(n.cfg.ServiceNodePortRange); err != nil {
		return err
	}
	if n.features, err = features.New(n.cfg.FeatureGates); err != nil {
		return err
	}
	for _, g := range n.features.All() {
		n.metrics.Feature(g.Name, g.Stage, g.Enabled)
	}
	hash := servedHash(n.kinds)
	n.metrics.Served(hash, len(n.kinds.All()))
	level := slog.LevelDebug
	if len(n.cfg.RuntimeConfig) > 0 {
		// The choice has to be the same on every node.
		level = slog.LevelInfo
	}
	n.log.Log(context.Background(), level, "these resources are served", "resources", len(n.kinds.All()), "hash", hash, "runtime-config", n.cfg.RuntimeConfig)
	if n.cfg.ShowHidden != "" {
		if err := n.metrics.ShowHidden(); err != nil {
			return err
		}
	}
	if n.cfg.AuditPath == "" {
		return nil
	}
	n.audit, err = audit.Open(audit.Config{
		PolicyFile: n.cfg.AuditPolicy, Path: n.cfg.AuditPath,
		MaxSize: n.cfg.AuditMaxSize, MaxBackups: n.cfg.AuditMaxBackups, MaxAge: n.cfg.AuditMaxAge,
		Observe: n.metrics, Log: n.log,
	})
	return err
}

// servedHash names a set of resources: nodes that serve the same have the same.
func servedHash(r *kinds.Registry) string {
	h := sha256.New()
	for _, x := range r.All() {
		fmt.Fprintln(h, x.Group, x.Version, x.Plural)
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8])
}
