package node

import "crypto/tls"

// ownServerName is who asks for it is shown the node's own certificate, where all others are shown one from
// files: the administrator's kubeconfig holds only as long as the cluster's authority is trusted.
const ownServerName = "node.quorate.internal"

// serverName is the server name in the administrator's kubeconfig, "" for that of the URL.
func (n *Node) serverName() string {
	if n.cfg.ServingCert == "" {
		return ""
	}
	return ownServerName
}

// publishedRoots are the authorities that Pods are told to trust. Of a certificate from files the authority is not
// known: the one who made it publishes that, as kube-controller-manager does of its --root-ca-file.
func (n *Node) publishedRoots() []byte {
	if n.cfg.ServingCert != "" {
		return nil
	}
	return n.pki.APICAs()
}

// servingCertificate is a tls.Config.GetCertificate: the certificate from files, and the node's own for who asks
// for that.
func (n *Node) servingCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if n.servingPair != nil && hello.ServerName != ownServerName {
		return n.servingPair.now.Load(), nil
	}
	return n.pki.ServingCertificate(hello)
}

// checkServingCert checks the API's certificate.
func (c *Config) checkServingCert(bad *mistakes) {
	checkKeyPair(bad, "tls-cert-file", "tls-private-key-file", c.ServingCert, c.ServingKey)
}
