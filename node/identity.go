package node

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"

	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/quorate/quorate/apiserver/objects/builtin/service"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/membership/pki"
)

// openIdentity finds out who this node is and makes what proves it.
func (n *Node) openIdentity(ctx context.Context) (err error) {
	if n.identity, err = membership.LoadIdentity(n.cfg.DataDir, n.cfg.Name); err != nil {
		return err
	}
	source := &secretSource{n.cfg, n.log, n.identity}
	secrets, err := source.load(ctx)
	if err == nil {
		err = source.check(secrets)
	}
	if err != nil {
		return err
	}
	hosts := append([]string{}, n.cfg.TLSNames...)
	for _, addr := range []string{n.cfg.APIListen, n.cfg.APIAdvertise, n.cfg.ControlPlaneEndpoint} {
		if host, _, err := net.SplitHostPort(addr); err == nil && host != "" {
			if ip := net.ParseIP(host); ip == nil || !ip.IsUnspecified() {
				hosts = append(hosts, host)
			}
		}
	}
	if n.cfg.ServingCert != "" {
		hosts = append(hosts, ownServerName)
	}
	serviceHosts, err := n.cfg.serviceHosts()
	if err != nil {
		return err
	}
	hosts = append(hosts, serviceHosts...)
	n.pki, err = pki.Open(pki.Options{
		Dir: filepath.Join(n.cfg.DataDir, "pki"), Secrets: secrets, NodeID: n.identity.ID(), Name: n.identity.Name(),
		Hosts: hosts, Logger: n.log, OnRenew: n.writeKubeconfig,
		Components: pki.ComponentOptions{Dir: n.cfg.ComponentKubeconfigs, Server: n.URL(), ServerName: n.serverName()},
	})
	if err != nil {
		return err
	}
	n.writeKubeconfig()
	if n.clientCAs, err = newClientCAs(n.pki.APIRoots(), n.cfg.ClientCA, n.log); err != nil {
		return fmt.Errorf("client-ca-file: %w", err)
	}
	n.servingPair, err = openKeyPair("tls-cert-file", "tls-private-key-file", n.cfg.ServingCert, n.cfg.ServingKey, n.log)
	return err
}

// serviceHosts are the addresses of the Service kubernetes, by which Pods call the API: the first of
// --service-cluster-ip-range. Of two families both are named: which one is first may be changed.
func (c *Config) serviceHosts() ([]string, error) {
	blocks, err := service.ParseBlocks(c.ServiceClusterIPRange)
	if err != nil {
		return nil, err
	}
	var hosts []string
	for i := range blocks {
		hosts = append(hosts, service.FirstAddress(blocks[i:]).String())
	}
	return hosts, nil
}

// checkComponents checks where the credentials of a control plane's programs are to be: what is there must be
// a directory, or the first of those above it that is there.
func (c *Config) checkComponents(bad *mistakes) {
	if c.ComponentKubeconfigs == "" {
		return
	}
	dir, err := filepath.Abs(c.ComponentKubeconfigs)
	if err != nil {
		bad.add("component-kubeconfigs: %w", err)
		return
	}
	for {
		info, err := os.Stat(dir)
		switch {
		case err == nil && !info.IsDir():
			bad.add("component-kubeconfigs: %s is not a directory", dir)
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
			dir = filepath.Dir(dir)
			continue
		case err != nil:
			bad.add("component-kubeconfigs: %w", err)
		}
		return
	}
}

// secretSource is where the secrets of the cluster come from.
type secretSource struct {
	cfg      *Config
	log      *slog.Logger
	identity *membership.Identity
}

// load returns the cluster's secrets, from the file that the operator shares among the
// nodes, from a join token on the first start, or made by a node that is alone.
func (s *secretSource) load(ctx context.Context) ([]pki.Secret, error) {
	file := cmp.Or(s.cfg.TokenFile, filepath.Join(s.cfg.DataDir, "token"))
	secrets, err := pki.LoadSecrets(file)
	switch {
	case err == nil && s.cfg.JoinToken != "":
		return secrets, s.joinKeptPeers()
	case !errors.Is(err, fs.ErrNotExist):
		return secrets, err
	case s.cfg.JoinToken != "":
		return s.joinWithToken(ctx, file)
	case s.cfg.TokenFile == "" && s.cfg.BootstrapExpect == 1:
		secrets, _, err := pki.LoadOrCreateSecrets(file)
		return secrets, err
	}
	return nil, fmt.Errorf(`there is no cluster secret in %s
  to make a cluster of one node:    --bootstrap-expect 1
  to make a cluster of several:     put the same secret on every node, for example from: openssl rand -hex 32
  to join a cluster that exists:    --join-token @FILE, with the output of: quorate token create`, file)
}

// writeKubeconfig keeps the administrator's kubeconfig for this node current.
func (n *Node) writeKubeconfig() {
	if err := n.kubeconfig().Write(filepath.Join(n.cfg.DataDir, "admin.kubeconfig")); err != nil {
		n.log.Error("cannot write the administrator's kubeconfig", "err", err)
	}
}

// kubeconfig is the administrator's for this node.
func (n *Node) kubeconfig() pki.Kubeconfig {
	cert, key := n.pki.Admin()
	return pki.Kubeconfig{
		Endpoints: []pki.Endpoint{{Name: "quorate-" + n.cfg.Name, Server: n.URL()}},
		CA:        n.pki.APICAs(), Cert: cert, Key: key, ServerName: n.serverName(),
	}
}

// check refuses to begin a cluster with a secret that could be guessed. A node that has
// something already goes on with it, as does one whom a cluster has given its secret for a join token:
// a cluster is not to stop for it. They say how to change it.
func (s *secretSource) check(secrets []pki.Secret) error {
	file := cmp.Or(s.cfg.TokenFile, filepath.Join(s.cfg.DataDir, "token"))
	for i, secret := range secrets {
		switch {
		case !secret.Guessable():
		case i == 0 && s.cfg.JoinToken == "" && s.isNew():
			return fmt.Errorf(`%w: line %d of %s does not look like 256 random bits; with any certificate of the cluster it could be guessed offline
  for a new cluster:          openssl rand -hex 32
  to join one that has it:    --join-token @FILE, with the output of: quorate token create; then change the cluster's secret`, pki.ErrSecret, i+1, file)
		default:
			s.log.Warn("the cluster secret does not look like 256 random bits and could be guessed: change it with openssl rand -hex 32",
				"file", file, "secret", i+1, "how", "docs/operations.md, The cluster secret")
		}
	}
	return nil
}

// isNew reports whether this node has nothing of a cluster yet.
func (s *secretSource) isNew() bool {
	if s.identity.Cluster() != "" {
		return false
	}
	_, err := os.Stat(filepath.Join(s.cfg.DataDir, "state.db")) // it may be restored from a backup
	return err != nil
}
