package commands

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/quorate/quorate/membership"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"sigs.k8s.io/yaml"
)

const (
	secretsPath = "/api/v1/namespaces/kube-system/secrets"
	infoPath    = "/api/v1/namespaces/kube-public/configmaps/" + bootstrapapi.ConfigMapClusterInfo
	// workerGroup may ask for the certificate of a node: what kubeadm's own tokens are in.
	workerGroup = "system:bootstrappers:kubeadm:default-node-token"
)

// workerID is the form of a bootstrap token's id; those of join tokens are longer.
var workerID = regexp.MustCompile(`^[a-z0-9]{6}$`)

// workerToken is a bootstrap token that was made.
type workerToken struct {
	Token   string    `json:"token"`
	Expires time.Time `json:"expires"`
	Command string    `json:"command"`
}

// createWorkerToken makes a bootstrap token, as kubeadm token create does, and the command that uses it.
func createWorkerToken(ctx context.Context, client *membership.AdminClient, ttl time.Duration, note string) (workerToken, error) {
	server, pins, err := discovery(ctx, client)
	if err != nil {
		return workerToken{}, err
	}
	id, secret := randomText(6), randomText(16)
	out := workerToken{Token: id + "." + secret, Expires: time.Now().Add(ttl).UTC().Truncate(time.Second)}
	s := corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: bootstrapapi.BootstrapTokenSecretPrefix + id},
		Type:       bootstrapapi.SecretTypeBootstrapToken,
		StringData: map[string]string{
			bootstrapapi.BootstrapTokenIDKey: id, bootstrapapi.BootstrapTokenSecretKey: secret,
			bootstrapapi.BootstrapTokenExpirationKey:       out.Expires.Format(time.RFC3339),
			bootstrapapi.BootstrapTokenUsageSigningKey:     "true",
			bootstrapapi.BootstrapTokenUsageAuthentication: "true",
			bootstrapapi.BootstrapTokenExtraGroupsKey:      workerGroup,
		},
	}
	if note != "" {
		s.StringData[bootstrapapi.BootstrapTokenDescriptionKey] = note
	}
	if err := client.Kubernetes(ctx, http.MethodPost, secretsPath, &s, &corev1.Secret{}); err != nil {
		return workerToken{}, fmt.Errorf("make the token: %w", err)
	}
	out.Command = "kubeadm join " + server + " --token " + out.Token
	for _, pin := range pins {
		out.Command += " --discovery-token-ca-cert-hash sha256:" + pin
	}
	return out, nil
}

const (
	// infoWithin is how long a cluster that is ready may take to make cluster-info.
	infoWithin = 10 * time.Second
	infoPoll   = 100 * time.Millisecond
)

// clusterInfo reads the ConfigMap cluster-info. The leader makes it when it finds the cluster ready, so that a command
// right after the first start may come before it.
func clusterInfo(ctx context.Context, client *membership.AdminClient) (info corev1.ConfigMap, err error) {
	until := time.Now().Add(infoWithin)
	for {
		err = client.Kubernetes(ctx, http.MethodGet, infoPath, nil, &info)
		if !errors.Is(err, membership.ErrNotFound) || time.Now().After(until) {
			return info, err
		}
		select {
		case <-ctx.Done():
			return info, err
		case <-time.After(infoPoll):
		}
	}
}

// discovery is where machines find the cluster, host:port, and the pins of the authorities by which they
// know it: both as the ConfigMap cluster-info says.
func discovery(ctx context.Context, client *membership.AdminClient) (server string, pins []string, err error) {
	info, err := clusterInfo(ctx, client)
	if err != nil {
		return "", nil, fmt.Errorf("read the ConfigMap cluster-info of kube-public, by which kubeadm join finds the cluster: %w", err)
	}
	var k struct {
		Clusters []struct {
			Cluster struct {
				Server string `json:"server"`
				CA     []byte `json:"certificate-authority-data"`
			} `json:"cluster"`
		} `json:"clusters"`
	}
	if err := yaml.Unmarshal([]byte(info.Data[bootstrapapi.KubeConfigKey]), &k); err != nil || len(k.Clusters) != 1 {
		return "", nil, errors.New("the kubeconfig in the ConfigMap cluster-info of kube-public does not name one cluster")
	}
	u, err := url.Parse(k.Clusters[0].Cluster.Server)
	if err != nil || u.Host == "" {
		return "", nil, fmt.Errorf("the ConfigMap cluster-info of kube-public names no server: %q", k.Clusters[0].Cluster.Server)
	}
	for rest := k.Clusters[0].Cluster.CA; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return "", nil, fmt.Errorf("an authority in the ConfigMap cluster-info of kube-public: %w", err)
		}
		sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
		pins = append(pins, hex.EncodeToString(sum[:]))
	}
	if len(pins) == 0 {
		return "", nil, errors.New("the ConfigMap cluster-info of kube-public has no authority")
	}
	return u.Host, pins, nil
}

// randomText is text of a length that is random in each character.
func randomText(n int) string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	out := make([]byte, 0, n)
	for buf := make([]byte, 2*n); len(out) < n; {
		rand.Read(buf)
		for _, b := range buf {
			if int(b) < 256/len(letters)*len(letters) && len(out) < n {
				out = append(out, letters[int(b)%len(letters)])
			}
		}
	}
	return string(out)
}

// workerTokens lists the bootstrap tokens as join tokens are listed.
func workerTokens(ctx context.Context, client *membership.AdminClient) ([]membership.TokenInfo, error) {
	var list corev1.SecretList
	path := secretsPath + "?fieldSelector=" + url.QueryEscape("type="+string(bootstrapapi.SecretTypeBootstrapToken))
	if err := client.Kubernetes(ctx, http.MethodGet, path, nil, &list); err != nil {
		return nil, fmt.Errorf("list the tokens of workers: %w", err)
	}
	var out []membership.TokenInfo
	for _, s := range list.Items {
		t := membership.TokenInfo{
			ID: strings.TrimPrefix(s.Name, bootstrapapi.BootstrapTokenSecretPrefix), Created: s.CreationTimestamp.Time,
			Note: string(s.Data[bootstrapapi.BootstrapTokenDescriptionKey]), State: membership.TokenValid, Worker: true,
		}
		if text := string(s.Data[bootstrapapi.BootstrapTokenExpirationKey]); text != "" {
			// A date that cannot be read is one that has passed: so the API takes it.
			if at, err := time.Parse(time.RFC3339, text); err != nil || time.Now().After(at) {
				t.State = membership.TokenExpired
			} else {
				t.Expires = at
			}
		}
		out = append(out, t)
	}
	return out, nil
}

// deleteWorkerToken deletes a bootstrap token.
func deleteWorkerToken(ctx context.Context, client *membership.AdminClient, id string) error {
	return client.Kubernetes(ctx, http.MethodDelete, secretsPath+"/"+bootstrapapi.BootstrapTokenSecretPrefix+id, nil, &metav1.Status{})
}
