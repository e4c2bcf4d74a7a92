package controllers

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	bootstrapsecrets "k8s.io/cluster-bootstrap/util/secrets"
)

var secretsGVR = corev1.SchemeGroupVersion.WithResource("secrets")

// tokenPeriod is how often bootstrap tokens are looked at that have a date.
const tokenPeriod = 10 * time.Second

// tokenSecrets returns the Secrets of kube-system that are bootstrap tokens, whatever they are called.
func tokenSecrets(s *objects.Store) ([]*mvcc.Version, error) {
	return s.Match(kinds.BuiltinTable(secretsGVR.GroupResource()), mvcc.Query{Prefix: metav1.NamespaceSystem + "/", Match: func(v *mvcc.Version) bool {
		kind, _ := v.Fields.Get("type")
		return kind == string(bootstrapapi.SecretTypeBootstrapToken) && v.Flags&proto.FlagTerminating == 0
	}})
}

// tokenCleaner deletes bootstrap tokens that have expired.
type tokenCleaner struct{ base }

func (c tokenCleaner) run(ctx context.Context) error {
	return c.onChange(ctx, []string{kinds.BuiltinTable(secretsGVR.GroupResource())}, tokenPeriod, func() (again bool, _ error) {
		versions, err := tokenSecrets(c.objects)
		if err != nil {
			return false, fmt.Errorf("list bootstrap tokens: %w", err)
		}
		for _, v := range versions {
			var s corev1.Secret
			if err := json.Unmarshal(v.Value(), &s); err != nil || !bootstrapsecrets.HasExpired(&s, c.objects.Now()) {
				continue
			}
			err := c.api.Delete(ctx, secretsGVR, metav1.NamespaceSystem, s.Name, s.UID)
			switch {
			case ctx.Err() != nil:
				return false, context.Cause(ctx)
			case err == nil:
				c.reports.log.Info("a bootstrap token has expired and is deleted", "name", s.Name)
			case !apierrors.IsNotFound(err) && !apierrors.IsConflict(err):
				again = true
				c.reports.failed("cannot delete a bootstrap token that has expired, retrying", "name", s.Name, "err", err)
			}
		}
		return again, nil
	})
}

// clusterInfoSigner keeps in the ConfigMap cluster-info a signature for each bootstrap token that is for signing: a machine that
// joins knows by it that the ConfigMap comes from the cluster that has made the token. Whatever kubeconfig the ConfigMap has is
// signed: anyone who may write it says whom such machines trust. It knows what it has looked at: other ConfigMaps may change all
// the time.
type clusterInfoSigner struct {
	base
	maps   string
	info   *mvcc.Version
	tokens []*mvcc.Version
	due    time.Time // when a token ends that is signed for
}

func (s *clusterInfoSigner) run(ctx context.Context) error {
	tables := []string{kinds.BuiltinTable(secretsGVR.GroupResource()), kinds.BuiltinTable(mapsGVR.GroupResource())}
	s.maps = tables[1]
	return s.onChange(ctx, tables, tokenPeriod, func() (again bool, _ error) {
		err := s.step(ctx)
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			s.reports.tried("cannot sign the ConfigMap cluster-info, retrying", err)
		}
		return err != nil, nil
	})
}

func (s *clusterInfoSigner) step(ctx context.Context) error {
	info, err := s.objects.Current(s.maps, metav1.NamespacePublic+"/"+bootstrapapi.ConfigMapClusterInfo)
	if err != nil {
		return err
	}
	tokens, err := tokenSecrets(s.objects)
	if err != nil {
		return err
	}
	now := s.objects.Now()
	if info == nil || info == s.info && slices.Equal(tokens, s.tokens) && (s.due.IsZero() || now.Before(s.due)) {
		return nil
	}
	s.info = nil
	var has corev1.ConfigMap
	if err := s.api.Get(ctx, mapsGVR, metav1.NamespacePublic, bootstrapapi.ConfigMapClusterInfo, &has); err != nil {
		return err
	}
	kubeconfig, ok := has.Data[bootstrapapi.KubeConfigKey]
	want := maps.Clone(has.Data)
	maps.DeleteFunc(want, func(key, _ string) bool { return strings.HasPrefix(key, bootstrapapi.JWSSignatureKeyPrefix) })
	var due time.Time
	for _, v := range tokens {
		id, secret, left := signingToken(v, now)
		if id == "" || !ok {
			continue
		}
		if want[bootstrapapi.JWSSignatureKeyPrefix+id], err = detachedSignature(kubeconfig, id, secret); err != nil {
			return err
		}
		if end := now.Add(left); left > 0 && (due.IsZero() || end.Before(due)) {
			due = end
		}
	}
	if ok && !maps.Equal(want, has.Data) {
		has.Data = want
		if err := s.api.Update(ctx, mapsGVR, metav1.NamespacePublic, bootstrapapi.ConfigMapClusterInfo, &has); err != nil {
			return err
		}
	}
	s.info, s.tokens, s.due = info, tokens, due
	return nil
}

// signingToken reads a token that is for signing, by upstream's rules: an empty id is none. left is for how
// long, zero without an end.
func signingToken(v *mvcc.Version, now time.Time) (id, secret string, left time.Duration) {
	var s corev1.Secret
	if err := json.Unmarshal(v.Value(), &s); err != nil {
		return "", "", 0
	}
	name, ok := bootstrapsecrets.ParseName(s.Name)
	id, secret = bootstrapsecrets.GetData(&s, bootstrapapi.BootstrapTokenIDKey), bootstrapsecrets.GetData(&s, bootstrapapi.BootstrapTokenSecretKey)
	left, expired := bootstrapsecrets.GetExpiration(&s, now)
	if !ok || id != name || secret == "" || expired || bootstrapsecrets.GetData(&s, bootstrapapi.BootstrapTokenUsageSigningKey) != "true" {
		return "", "", 0
	}
	return id, secret, left
}

// detachedSignature is a JWS (RFC 7515, appendix F) of a text by a token's secret, without the text.
// kubeadm compares it as a string with its own, so the header is as upstream's library writes it.
func detachedSignature(text, id, secret string) (string, error) {
	if id == "" || secret == "" {
		return "", errors.New("a signature needs an id and a secret")
	}
	header, err := json.Marshal(struct {
		Algorithm string `json:"alg"`
		Key       string `json:"kid"`
	}{"HS256", id})
	if err != nil {
		return "", err
	}
	b64 := base64.RawURLEncoding.EncodeToString
	sum := hmac.New(sha256.New, []byte(secret))
	sum.Write([]byte(b64(header) + "." + b64([]byte(text))))
	return b64(header) + ".." + b64(sum.Sum(nil)), nil
}
