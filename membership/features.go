package membership

import (
	"context"
	"fmt"
)

// featureRaiser has, while this node leads, the cluster speak the newest feature version
// that all members support. It costs two look-ups when that is so already.
type featureRaiser struct{ *changes }

func (f featureRaiser) run(ctx context.Context) {
	f.eachTick(ctx, "the cluster's feature version is not raised yet", func(ctx context.Context) error {
		if cluster, supported := f.raft.Features(); !f.raft.IsLeader() || cluster >= supported {
			return nil
		}
		return f.raise(ctx)
	})
}

// raise asks all members what they support, non-voters too: anyone who applies
// entries must know them. A member that does not answer might run a release that does not.
func (f featureRaiser) raise(ctx context.Context) error {
	// No member may be added between the questions and the entry.
	if err := f.lockChanges(ctx); err != nil {
		return err
	}
	defer f.unlockChanges()
	conf := f.raft.Members()
	cluster, version := f.raft.Features()
	answers := f.askAll(ctx, conf.Servers)
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
	if err := f.raft.RaiseFeature(ctx, version, conf.Index); err != nil {
		return err
	}
	f.log.Info("the cluster speaks a newer feature version", "version", version, "before", cluster)
	return nil
}
