package pki

import (
	"bytes"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Components are the programs of a control plane that get credentials of their own. Each is the user
// system:NAME, for whom every cluster has roles.
var Components = []string{"kube-controller-manager", "kube-scheduler"}

// Names of the files in a component's directory. Certificate and key are in one file, so that who reads
// it during a renewal gets both old or both new.
const (
	FileComponentKubeconfig  = "kubeconfig"
	FileComponentCredentials = "client.pem"
	FileComponentCA          = "ca.crt"
)

// ComponentOptions ask a Node for the credentials of components.
type ComponentOptions struct {
	// Dir gets a directory for each component. Empty: there are none.
	Dir string
	// Server is the URL of the API, ServerName the name in its certificate if that is not the URL's.
	Server, ServerName string
}

// ComponentKubeconfig is where the kubeconfig of a component is, below the directory of all.
func ComponentKubeconfig(dir, component string) string {
	return filepath.Join(dir, component, FileComponentKubeconfig)
}

// modeComponent lets the group of the directory read, which the operator decides: the component need not
// run as the user who holds the cluster's secret. A directory that is made here is its owner's alone.
const modeComponent = 0o640

// writeComponents makes the credentials of components, or renews those that are due.
func (n *Node) writeComponents() (renewed bool, err error) {
	o := n.opt.Components
	if o.Dir == "" {
		return false, nil
	}
	for _, component := range Components {
		fresh, err := n.writeComponent(component)
		if err != nil {
			return renewed, fmt.Errorf("component-kubeconfigs: credentials of %s: %w", component, err)
		}
		renewed = renewed || fresh
	}
	return renewed, nil
}

func (n *Node) writeComponent(component string) (renewed bool, err error) {
	dir := filepath.Join(n.opt.Components.Dir, component)
	if err := os.MkdirAll(dir, ModeDir); err != nil { // modes of those that exist are the operator's
		return false, err
	}
	file := filepath.Join(dir, FileComponentCredentials)
	_, renewed, err = n.keepOrIssue(n.signing.api, clientRequest(n.opt.NodeID, pkix.Name{CommonName: "system:" + component}), file, file, func(l *leaf) error {
		return WriteFile(file, append(bytes.Clone(l.certPEM), l.keyPEM...), modeComponent)
	})
	return renewed, errors.Join(err,
		replaceFile(filepath.Join(dir, FileComponentCA), n.APICAs(), modeComponent),
		replaceFile(filepath.Join(dir, FileComponentKubeconfig), n.componentKubeconfig(component), modeComponent))
}

// componentKubeconfig names the files beside it instead of holding them: client-go reads a certificate
// that lies in a file again when it connects, and so needs no restart when it is renewed.
func (n *Node) componentKubeconfig(component string) []byte {
	q := func(s string) string {
		b, _ := json.Marshal(s) // a JSON string is a YAML string
		return string(b)
	}
	o := n.opt.Components
	var name string
	if o.ServerName != "" {
		name = "\n    tls-server-name: " + q(o.ServerName)
	}
	user := q("system:" + component)
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
preferences: {}
current-context: quorate
clusters:
- name: quorate
  cluster:
    server: %s
    certificate-authority: %s%s
contexts:
- name: quorate
  context:
    cluster: quorate
    user: %s
users:
- name: %s
  user:
    client-certificate: %s
    client-key: %[6]s
`, q(o.Server), FileComponentCA, name, user, user, FileComponentCredentials)
}

// replaceFile is WriteFile, but leaves a file alone that has this content already.
func replaceFile(path string, data []byte, mode os.FileMode) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
		return nil
	}
	return WriteFile(path, data, mode)
}
