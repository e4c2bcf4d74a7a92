package membership

import (
	"context"
	"fmt"
)

// raiseFeatures has, while this node leads, the cluster speak the newest feature version
// that all members support. It costs two look-ups when that is so already.
func (m *Manager) raiseFeatures(ctx context.Context) {
	var reason string
	for sleep(ctx, m.opt.Tick, nil) == nil {
		if cluster, supported := m.raft.Features(); !m.raft.IsLeader() || cluster >= supported {
			reason = ""
			continue
		}
		err := m.raiseFeature(ctx)
		if err != nil && ctx.Err() == nil && err.Error() != reason {
			reason = err.Error()
			m.log.Info("the cluster's feature version is not raised yet", "reason", err)
		}
	}
}

// raiseFeature asks all members what they support, non-voters too: anyone who applies
// entries must know them. A member that does not answer might run a release that does not.
func (m *Manager) raiseFeature(ctx context.Context) error {
	// No member may be added between the questions and the entry.
	if err := m.lockChanges(ctx); err != nil {
		return err
	}
	defer m.unlockChanges()
	conf, err := m.raft.Members()
	if err != nil {
		return err
	}
	cluster, version := m.raft.Features()
	answers := m.askAll(ctx, conf.Servers)
	for _, s := range conf.Servers {
		a := answers[s.ID]
		if a.err != nil {
			return fmt.Errorf("member %s at %s does not say what it supports: %w", s.ID, s.Address, a.err)
		}
		version = min(version, a.status.FeatureVersion)
		if version <= cluster {
			return fmt.Errorf("member %s (%s) runs release %s, which supports feature version %d",
				a.status.Name, s.ID, a.status.Version, a.status.FeatureVersion)
		}
	}
	if err := m.raft.RaiseFeature(ctx, version, conf.Index); err != nil {
		return err
	}
	m.log.Info("the cluster speaks a newer feature version", "version", version, "before", cluster)
	return nil
}
