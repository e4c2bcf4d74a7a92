package pki

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

const (
	kubeconfigUser     = "quorate-admin"
	maxKubeconfigBytes = 1 << 20
)

// Endpoint is one API server in a kubeconfig.
type Endpoint struct {
	Name   string // of cluster and context, e.g. quorate-n1
	Server string // URL
}

// Kubeconfig is a user's access to a cluster, mostly an administrator's: one context per node.
type Kubeconfig struct {
	// User is what the file calls the user. Default: the administrator.
	User      string
	Endpoints []Endpoint
	// Current is the name of the current context. Default: the first one.
	Current       string
	CA, Cert, Key []byte // PEM
	// ServerName is the one in the servers' certificates, and that clients ask for. Default: that of the URL.
	ServerName string
	// As is whom the user acts as; the zero value is nobody else.
	As Impersonation
}

// Impersonation is whom a kubeconfig's user acts as in each request, in kubectl's words.
type Impersonation struct {
	User   string              `yaml:"as"`
	UID    string              `yaml:"as-uid"`
	Groups []string            `yaml:"as-groups"`
	Extra  map[string][]string `yaml:"as-user-extra"`
}

// TLS returns the configuration of its clients: they trust the cluster's CA and present the
// administrator's certificate.
func (k Kubeconfig) TLS() (*tls.Config, error) {
	cert, err := tls.X509KeyPair(k.Cert, k.Key)
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig's user has no client certificate: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(k.CA) {
		return nil, errors.New("the kubeconfig has no CA")
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{cert}, ServerName: k.ServerName}, nil
}

// Encode returns the file's content. The same value gives the same bytes.
func (k Kubeconfig) Encode() ([]byte, error) {
	if len(k.Endpoints) == 0 {
		return nil, errors.New("kubeconfig: no server")
	}
	current := k.Current
	if current == "" {
		current = k.Endpoints[0].Name
	}
	// A JSON string is a YAML string.
	q := func(s string) string {
		b, _ := json.Marshal(s) // a string cannot fail
		return string(b)
	}
	user := kubeconfigUser
	if k.User != "" {
		user = q(k.User)
	}
	b64 := base64.StdEncoding.EncodeToString
	var b bytes.Buffer
	b.WriteString("apiVersion: v1\nkind: Config\npreferences: {}\n")
	fmt.Fprintf(&b, "current-context: %s\nclusters:\n", q(current))
	for _, e := range k.Endpoints {
		fmt.Fprintf(&b, "- name: %s\n  cluster:\n    server: %s\n    certificate-authority-data: %s\n", q(e.Name), q(e.Server), b64(k.CA))
		if k.ServerName != "" {
			fmt.Fprintf(&b, "    tls-server-name: %s\n", q(k.ServerName))
		}
	}
	b.WriteString("contexts:\n")
	for _, e := range k.Endpoints {
		fmt.Fprintf(&b, "- name: %s\n  context:\n    cluster: %s\n    user: %s\n", q(e.Name), q(e.Name), user)
	}
	fmt.Fprintf(&b, "users:\n- name: %s\n  user:\n    client-certificate-data: %s\n    client-key-data: %s\n", user, b64(k.Cert), b64(k.Key))
	return b.Bytes(), nil
}

// Write replaces the file atomically, with mode 0600. Under sudo the file is
// given to the user who called sudo, who could not read it otherwise.
func (k Kubeconfig) Write(path string) error {
	data, err := k.Encode()
	if err != nil {
		return err
	}
	if err := WriteFile(path, data, ModeSecret); err != nil {
		return err
	}
	uid, gid, ok := sudoUser(os.Geteuid(), os.Getenv)
	if !ok {
		return nil
	}
	if err := os.Chown(path, uid, gid); err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	return nil
}

// sudoUser returns the user behind sudo, if this process is root through it.
func sudoUser(euid int, getenv func(string) string) (uid, gid int, ok bool) {
	if euid != 0 {
		return 0, 0, false
	}
	uid, err1 := strconv.Atoi(getenv("SUDO_UID"))
	gid, err2 := strconv.Atoi(getenv("SUDO_GID"))
	return uid, gid, err1 == nil && err2 == nil && uid > 0 && gid >= 0
}

// kubeconfigFile is the part of the format that is read.
type kubeconfigFile struct {
	Current  string `yaml:"current-context"`
	Clusters []struct {
		Name    string `yaml:"name"`
		Cluster struct {
			Server string `yaml:"server"`
			CAData string `yaml:"certificate-authority-data"`
			CAFile string `yaml:"certificate-authority"`
			Name   string `yaml:"tls-server-name"`
		} `yaml:"cluster"`
	} `yaml:"clusters"`
	Contexts []struct {
		Name    string `yaml:"name"`
		Context struct {
			Cluster string `yaml:"cluster"`
			User    string `yaml:"user"`
		} `yaml:"context"`
	} `yaml:"contexts"`
	Users []struct {
		Name string `yaml:"name"`
		User struct {
			CertData string `yaml:"client-certificate-data"`
			CertFile string `yaml:"client-certificate"`
			KeyData  string `yaml:"client-key-data"`
			KeyFile  string `yaml:"client-key"`

			Impersonation `yaml:",inline"`
		} `yaml:"user"`
	} `yaml:"users"`
}

var errNotKubeconfig = errors.New("this is not a kubeconfig")

// ReadKubeconfig reads a kubeconfig, ours or merged into someone's own: the
// context's server first (the current context's if context is empty), then the
// other servers that are reached with the same user and the same CA.
func ReadKubeconfig(path, context string) (Kubeconfig, error) {
	st, err := os.Stat(path)
	if err != nil {
		return Kubeconfig{}, fmt.Errorf("kubeconfig: %w", err)
	}
	if st.Size() > maxKubeconfigBytes {
		return Kubeconfig{}, fmt.Errorf("kubeconfig %s: more than %d bytes", path, maxKubeconfigBytes)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return Kubeconfig{}, fmt.Errorf("kubeconfig: %w", err)
	}
	k, err := parseKubeconfig(data, context, os.ReadFile)
	if err != nil {
		return Kubeconfig{}, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	return k, nil
}

func parseKubeconfig(data []byte, context string, readFile fileReader) (Kubeconfig, error) {
	var f kubeconfigFile
	if err := yaml.Unmarshal(data, &f); err != nil || len(f.Clusters) == 0 && len(f.Contexts) == 0 {
		return Kubeconfig{}, errNotKubeconfig
	}
	if context == "" {
		context = f.Current
	}
	out := Kubeconfig{Current: context}
	user, err := f.endpoints(&out, readFile)
	if err != nil {
		return Kubeconfig{}, err
	}
	for _, u := range f.Users {
		if u.Name != user {
			continue
		}
		var err1, err2 error
		out.As = u.User.Impersonation
		out.Cert, err1 = readFile.load(u.User.CertData, u.User.CertFile)
		out.Key, err2 = readFile.load(u.User.KeyData, u.User.KeyFile)
		return out, errors.Join(err1, err2)
	}
	return Kubeconfig{}, fmt.Errorf("no user %q", user)
}

// endpoints gives k the servers of its current context, and then those of the others that have
// the same CA, server name and user: they are other nodes. It returns the user's name.
func (f *kubeconfigFile) endpoints(k *Kubeconfig, readFile fileReader) (user string, err error) {
	add := func(name, cluster, ctxUser string) error {
		for _, c := range f.Clusters {
			if c.Name != cluster {
				continue
			}
			ca, err := readFile.load(c.Cluster.CAData, c.Cluster.CAFile)
			if err != nil {
				return fmt.Errorf("cluster %s: %w", c.Name, err)
			}
			if len(k.Endpoints) == 0 {
				k.CA, k.ServerName, user = ca, c.Cluster.Name, ctxUser
			} else if user != ctxUser || !bytes.Equal(ca, k.CA) || c.Cluster.Name != k.ServerName {
				return nil
			}
			k.Endpoints = append(k.Endpoints, Endpoint{Name: name, Server: c.Cluster.Server})
		}
		return nil
	}
	var names []string
	for _, c := range f.Contexts {
		names = append(names, c.Name)
		if c.Name != k.Current {
			continue
		}
		if err := add(c.Name, c.Context.Cluster, c.Context.User); err != nil {
			return "", err
		}
	}
	if len(k.Endpoints) == 0 {
		return "", fmt.Errorf("there is no context %q with a cluster; the contexts are: %s", k.Current, strings.Join(names, ", "))
	}
	for _, c := range f.Contexts {
		if c.Name != k.Current {
			_ = add(c.Name, c.Context.Cluster, c.Context.User) // a context that cannot be read is none of this cluster's
		}
	}
	return user, nil
}

// fileReader reads what a kubeconfig keeps in other files.
type fileReader func(path string) ([]byte, error)

// load returns what a kubeconfig has as base64, or in a file.
func (read fileReader) load(data, file string) ([]byte, error) {
	if data == "" && file != "" {
		return read(file)
	}
	return base64.StdEncoding.DecodeString(data)
}
