package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/membership/pki"
)

// joinWithin bounds the exchange of a join token at the start of a node.
const joinWithin = 30 * time.Second

// joinWithToken exchanges a join token for the cluster's secret and keeps it, so
// that the next start needs no token.
func (n *node) joinWithToken(ctx context.Context, file string) ([]pki.Secret, error) {
	text := n.cfg.JoinToken
	if path, ok := strings.CutPrefix(text, "@"); ok {
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("join token: %w", err)
		}
		text = strings.TrimSpace(string(b))
	}
	token, err := membership.ParseJoinToken(text)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, joinWithin)
	defer cancel()
	grant, err := membership.JoinWithToken(ctx, token, n.cfg.Join, n.cfg.Name)
	if err != nil {
		return nil, err
	}
	if err := pki.SaveSecrets(file, grant.Secrets); err != nil {
		return nil, err
	}
	n.cfg.Join = grant.Peers
	n.log.Info("the cluster has accepted the join token", "cluster", grant.ClusterID, "peers", grant.Peers)
	return grant.Secrets, nil
}
