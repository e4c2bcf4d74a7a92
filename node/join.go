package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/membership/pki"
)

// joinWithin bounds the exchange of a join token at the start of a node.
const joinWithin = 30 * time.Second

// peersFile holds the peers that came with the secret. A first start may fail
// after the exchange, over a taken port for instance; the second one, by the same
// command line, must not take the API address in --join for a peer's.
const peersFile = "join.json"

func (s *secretSource) keepPeers(peers []string) error {
	b, err := json.Marshal(peers)
	if err != nil {
		return err
	}
	return pki.WriteFile(filepath.Join(s.cfg.DataDir, peersFile), append(b, '\n'), pki.ModeSecret)
}

// joinKeptPeers takes the peers of an earlier exchange, if there was one.
func (s *secretSource) joinKeptPeers() error {
	b, err := os.ReadFile(filepath.Join(s.cfg.DataDir, peersFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(b, &s.cfg.Join)
	}
	if err != nil {
		return fmt.Errorf("peers of the join token: %w", err)
	}
	return nil
}

// joinWithToken exchanges a join token for the cluster's secret and keeps it, so
// that the next start needs no token.
func (s *secretSource) joinWithToken(ctx context.Context, file string) ([]pki.Secret, error) {
	text := s.cfg.JoinToken
	if path, ok := strings.CutPrefix(text, "@"); ok {
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("join token: %w", err)
		}
		text = strings.TrimSpace(string(b))
		if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o004 != 0 {
			s.log.Warn("everyone can read the join token, which is worth as much as the cluster secret: chmod 600", "file", path)
		}
	}
	token, err := membership.ParseJoinToken(text)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, joinWithin)
	defer cancel()
	grant, err := membership.JoinWithToken(ctx, token, s.cfg.Join, s.cfg.Name)
	if err != nil {
		return nil, err
	}
	// The peers first: once the secret is there, the token is not used again.
	if err := s.keepPeers(grant.Peers); err != nil {
		return nil, err
	}
	if err := pki.SaveSecrets(file, grant.Secrets); err != nil {
		return nil, err
	}
	s.cfg.Join = grant.Peers
	s.log.Info("the cluster has accepted the join token", "cluster", grant.ClusterID, "peers", grant.Peers)
	return grant.Secrets, nil
}
