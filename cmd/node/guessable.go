package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"

	"github.com/quorate/quorate/membership/pki"
)

// checkSecrets refuses to begin a cluster with a secret that could be guessed. A node that has
// something already goes on with it, as does one whom a cluster has given its secret for a join token:
// a cluster is not to stop for it. They say how to change it.
func (n *node) checkSecrets(secrets []pki.Secret) error {
	file := cmp.Or(n.cfg.TokenFile, filepath.Join(n.cfg.DataDir, "token"))
	for i, s := range secrets {
		switch {
		case !s.Guessable():
		case i == 0 && n.cfg.JoinToken == "" && n.isNew():
			return fmt.Errorf(`%w: line %d of %s does not look like 256 random bits; with any certificate of the cluster it could be guessed offline
  for a new cluster:          openssl rand -hex 32
  to join one that has it:    --join-token @FILE, with the output of: quorate token create; then change the cluster's secret`, pki.ErrSecret, i+1, file)
		default:
			n.log.Warn("the cluster secret does not look like 256 random bits and could be guessed: change it with openssl rand -hex 32",
				"file", file, "secret", i+1, "how", "docs/operations.md, The cluster secret")
		}
	}
	return nil
}

// isNew reports whether this node has nothing of a cluster yet.
func (n *node) isNew() bool {
	if n.identity.Cluster() != "" {
		return false
	}
	_, err := os.Stat(filepath.Join(n.cfg.DataDir, "state.db")) // it may be restored from a backup
	return err != nil
}
