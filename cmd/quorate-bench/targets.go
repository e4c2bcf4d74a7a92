package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/quorate/quorate/bench/client"
	"github.com/quorate/quorate/internal/playground"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// benchCluster are the flags that say what is measured.
type benchCluster struct {
	voters    int
	nonvoters int
	dataDir   string
	set       []string
	// What quorate has not started, for commands that measure that too.
	clusterFile, kubeconfig string
	contexts, servers       []string
	pids                    []int
	// What is done to nodes needs these of a temporary cluster: see playground.Options.
	partitions, slowDisks bool
}

func (b *benchCluster) flags(f *pflag.FlagSet, nonvoters int) {
	f.StringVar(&b.dataDir, "data-dir", "", "measure the running cluster of this directory (see 'quorate dev')")
	f.IntVar(&b.voters, "voters", 3, "voters of the temporary cluster")
	f.IntVar(&b.nonvoters, "nonvoters", nonvoters, "nodes without a vote of the temporary cluster")
	f.StringArrayVar(&b.set, "set", nil, "setting for every node of the temporary cluster, as flag=value")
}

// otherFlags are those of what quorate has not started.
func (b *benchCluster) otherFlags(f *pflag.FlagSet) {
	f.StringVar(&b.clusterFile, "cluster", "", "measure the nodes of a cluster.json, as 'quorate dev' writes it")
	f.StringVar(&b.kubeconfig, "kubeconfig", "", "measure the server of this kubeconfig")
	f.StringSliceVar(&b.contexts, "context", nil, "context of the kubeconfig (default: the current one)")
	f.StringSliceVar(&b.servers, "server", nil, "address of a server, in place of the kubeconfig's")
	f.IntSliceVar(&b.pids, "pids", nil, "processes on this machine whose CPU time is the servers'")
}

// exclusive refuses flags of which one makes the other meaningless.
func (b *benchCluster) exclusive(f *pflag.FlagSet) error {
	var errs []error
	targets := []string{"data-dir", "cluster", "kubeconfig", "etcd"}
	for i, one := range targets {
		for _, other := range slices.Concat(targets[i+1:], []string{"voters", "nonvoters", "set"}) {
			errs = append(errs, excludeEachOther(f, one, other))
		}
	}
	errs = append(errs, need(f, "context", "kubeconfig"), need(f, "server", "kubeconfig"))
	if len(b.servers) > 0 && len(b.contexts) > 1 {
		errs = append(errs, errors.New("--server needs one --context: that of the user"))
	}
	if f.Changed("pids") && !f.Changed("kubeconfig") && !f.Changed("etcd") {
		errs = append(errs, errors.New("--pids needs --kubeconfig or --etcd: of quorate's own clusters the processes are known"))
	}
	return errors.Join(errs...)
}

// open opens the running cluster that is named, or starts one. end stops and removes
// what was started.
func (b *benchCluster) open(ctx context.Context, progress io.Writer) (t *playground.Target, end func() error, err error) {
	if b.dataDir != "" {
		t, err = playground.Running(b.dataDir)
		return t, func() error { return nil }, err
	}
	if err := playground.CheckSettings(ctx, b.set); err != nil {
		return nil, nil, err
	}
	return playground.Temporary(ctx, playground.Options{
		Nodes: b.voters, Nonvoters: b.nonvoters, Set: b.set, Partitions: b.partitions, SlowDisks: b.slowDisks,
	}, progress)
}

// target is what is measured, by whatever flag it is named.
func (b *benchCluster) target(ctx context.Context, progress io.Writer) (c client.Cluster, end func() error, err error) {
	end = func() error { return nil }
	switch {
	case b.clusterFile != "":
		c, err = client.ReadCluster(b.clusterFile)
		return c, end, err
	case b.kubeconfig != "":
		c, err = b.fromKubeconfig()
		return c, end, err
	}
	own, end, err := b.open(ctx, progress)
	if err != nil {
		return c, nil, err
	}
	return benchTarget(own), end, nil
}

// benchTarget is a playground as those who measure know it.
func benchTarget(t *playground.Target) client.Cluster {
	out := client.Cluster{TLS: t.TLS, Dir: t.Dir}
	for _, n := range t.Nodes {
		out.Nodes = append(out.Nodes, client.Node{Name: n.Name, API: n.API, PID: n.PID})
	}
	return out
}

// processes are nodes without an API: only what they cost counts.
func processes(pids []int) (out []client.Node, err error) {
	for _, pid := range pids {
		if pid <= 0 {
			return nil, fmt.Errorf("--pids %d: must be a process", pid)
		}
		if _, err := os.Stat(fmt.Sprintf("/proc/%d/stat", pid)); err != nil {
			return nil, fmt.Errorf("--pids %d: there is no such process on this machine", pid)
		}
		out = append(out, client.Node{Name: fmt.Sprintf("pid %d", pid), PID: pid})
	}
	return out, nil
}

// fromKubeconfig is the servers of a kubeconfig's contexts, or those that are named, which the same user reaches.
func (b *benchCluster) fromKubeconfig() (c client.Cluster, err error) {
	contexts := b.contexts
	if len(contexts) == 0 {
		contexts = []string{""}
	}
	for i, name := range contexts {
		read := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(&clientcmd.ClientConfigLoadingRules{ExplicitPath: b.kubeconfig}, &clientcmd.ConfigOverrides{CurrentContext: name})
		config, err := read.ClientConfig()
		if err == nil && name == "" {
			raw, failed := read.RawConfig()
			name, err = raw.CurrentContext, failed
		}
		if err != nil {
			return c, fmt.Errorf("--kubeconfig %s: %w", b.kubeconfig, err)
		}
		one, token, err := credentials(config)
		if err != nil {
			return c, fmt.Errorf("--kubeconfig %s: %w", b.kubeconfig, err)
		}
		switch {
		case i == 0:
			c.TLS, c.Token = one, token
		case token != c.Token || !sameTLS(one, c.TLS):
			return c, fmt.Errorf("--context %s: it has another user or another CA than %s", name, contexts[0])
		}
		c.Nodes = append(c.Nodes, client.Node{Name: name, API: config.Host})
	}
	if len(b.servers) > 0 {
		c.Nodes = nil
	}
	for _, text := range b.servers {
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "https" || u.Host == "" {
			return c, fmt.Errorf("--server %q: must be the address of a server, as https://127.0.0.1:6443", text)
		}
		if slices.ContainsFunc(c.Nodes, func(n client.Node) bool { return n.Name == u.Host }) {
			return c, fmt.Errorf("--server %s: it is there twice", text)
		}
		c.Nodes = append(c.Nodes, client.Node{Name: u.Host, API: text})
	}
	more, err := processes(b.pids)
	c.Nodes = append(c.Nodes, more...)
	return c, err
}

// credentials are how a server is reached. What a load cannot do as the kubeconfig says is
// refused.
func credentials(config *rest.Config) (*tls.Config, string, error) {
	switch {
	case config.ExecProvider != nil:
		return nil, "", fmt.Errorf("its user has an exec plugin (%s), which is not run: put a token or a certificate in its place", config.ExecProvider.Command)
	case config.AuthProvider != nil:
		return nil, "", errors.New("its user has an auth-provider, which is not supported")
	case config.Username != "" || config.Password != "":
		return nil, "", errors.New("its user has a password: servers of the Kubernetes API take none any more")
	case config.Impersonate.UserName != "" || config.Impersonate.UID != "" || len(config.Impersonate.Groups) > 0 || len(config.Impersonate.Extra) > 0:
		return nil, "", errors.New("its user acts as another one (as, as-groups), which is not supported")
	case config.Proxy != nil:
		return nil, "", errors.New("its cluster has a proxy-url, which is not supported")
	}
	if u, err := url.Parse(config.Host); err != nil || u.Scheme != "https" {
		return nil, "", fmt.Errorf("its server is %q: want https://HOST:PORT", config.Host)
	}
	t, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, "", err
	}
	if t == nil {
		t = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if t.GetClientCertificate != nil && len(t.Certificates) == 0 {
		cert, err := t.GetClientCertificate(nil)
		if err != nil {
			return nil, "", err
		}
		t.Certificates = []tls.Certificate{*cert}
	}
	t.NextProtos = []string{"h2"}
	token := config.BearerToken
	if token == "" && config.BearerTokenFile != "" {
		raw, err := os.ReadFile(config.BearerTokenFile)
		if err != nil {
			return nil, "", err
		}
		token = strings.TrimSpace(string(raw))
	}
	return t, token, nil
}

func sameTLS(a, b *tls.Config) bool {
	certs := func(c *tls.Config) (all []byte) {
		for _, x := range c.Certificates {
			for _, der := range x.Certificate {
				all = append(all, der...)
			}
		}
		return all
	}
	roots := a.RootCAs == nil && b.RootCAs == nil || a.RootCAs != nil && b.RootCAs != nil && a.RootCAs.Equal(b.RootCAs)
	return roots && a.ServerName == b.ServerName && a.InsecureSkipVerify == b.InsecureSkipVerify && slices.Equal(certs(a), certs(b))
}

// benchEtcd are the flags that name an etcd.
type benchEtcd struct {
	urls          []string
	ca, cert, key string
}

// members are those of an etcd.
func (b *benchEtcd) members(pids []int) (c client.Cluster, err error) {
	c.TLS = &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}
	for _, text := range b.urls {
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
			return c, fmt.Errorf("--etcd %q: must be the client URL of a member, as https://127.0.0.1:2379", text)
		}
		c.Nodes = append(c.Nodes, client.Node{Name: u.Host, API: text})
	}
	if b.ca != "" {
		pem, err := os.ReadFile(b.ca)
		if err != nil {
			return c, fmt.Errorf("--etcd-cacert: %w", err)
		}
		c.TLS.RootCAs = x509.NewCertPool()
		if !c.TLS.RootCAs.AppendCertsFromPEM(pem) {
			return c, fmt.Errorf("--etcd-cacert: no certificate in %s", b.ca)
		}
	}
	if b.cert != "" {
		pair, err := tls.LoadX509KeyPair(b.cert, b.key)
		if err != nil {
			return c, fmt.Errorf("--etcd-cert, --etcd-key: %w", err)
		}
		c.TLS.Certificates = []tls.Certificate{pair}
	}
	more, err := processes(pids)
	c.Nodes = append(c.Nodes, more...)
	return c, err
}
