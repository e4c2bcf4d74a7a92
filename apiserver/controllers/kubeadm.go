package controllers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"sigs.k8s.io/yaml"
)

// Joining is what machines are told that join as nodes of the cluster.
type Joining struct {
	// Server returns the URL of the API at this node. Nil: machines are told nothing.
	Server func() string
	// Endpoint is host:port of the API for nodes, such as that of a load balancer. Empty: Server's.
	Endpoint string
	// Version is that of Kubernetes, such as v1.36.3.
	Version string
}

const (
	kubeadmConfig = "kubeadm-config" // says that all the rest has been made
	kubeletConfig = "kubelet-config"
	// generatedHash is an annotation of cluster-info: the hash of the kubeconfig that the node has written.
	// If it still is that one, nobody has edited it.
	generatedHash = "quorate.io/generated"
	clusterDomain = "cluster.local"
)

// joiningPublisher makes what kubeadm init would leave for kubeadm join: the ConfigMaps and the roles by which they are read. It
// is made once: what an administrator edits or deletes of it stays so, as upstream's pages say how to turn off what these roles
// allow. Made last, and so the mark that the rest is there, is the ConfigMap kubeadm-config. What clients must know of the
// authority and the address follows changes, unless it was edited.
type joiningPublisher struct {
	base
	Joining
	members func() ([]string, error) // the URLs of the API; nil: they are not known
	blocks  []netip.Prefix           // of Services
	roots   []byte                   // that vouch for the API
	// info is what of cluster-info was looked at, and when: other ConfigMaps may change all the time.
	info   *mvcc.Version
	looked time.Time
}

func (p *joiningPublisher) run(ctx context.Context) error {
	tables := []string{objects.NamespacesTable, kinds.BuiltinTable(mapsGVR.GroupResource())}
	return p.onChange(ctx, tables, tokenPeriod, func() (again bool, _ error) {
		for _, name := range [...]string{metav1.NamespaceSystem, metav1.NamespacePublic} {
			v, err := p.objects.Current(objects.NamespacesTable, name)
			if err != nil {
				return false, err
			}
			if v == nil || v.Flags&proto.FlagTerminating != 0 {
				return false, nil
			}
		}
		err := p.ensure(ctx)
		if err == nil {
			err = p.refresh(ctx)
		}
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		if !apierrors.IsConflict(err) {
			p.reports.tried("cannot write what kubeadm join reads, retrying", err)
		}
		return err != nil, nil
	})
}

// ensure makes everything, unless that was done.
func (p *joiningPublisher) ensure(ctx context.Context) error {
	done, err := p.objects.Current(kinds.BuiltinTable(mapsGVR.GroupResource()), metav1.NamespaceSystem+"/"+kubeadmConfig)
	if err != nil || done != nil {
		return err
	}
	made, err := p.wanted()
	if err != nil {
		return err
	}
	for _, x := range made {
		if err := p.api.Create(ctx, x.gvr, x.object.GetNamespace(), x.object); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create %s %s: %w", x.gvr.Resource, x.object.GetName(), err)
		}
	}
	return nil
}

// joiningObject is an object that kubeadm init would make.
type joiningObject struct {
	gvr    schema.GroupVersionResource
	object metav1.Object
}

// wanted returns all of them, kubeadm-config last.
func (p *joiningPublisher) wanted() ([]joiningObject, error) {
	info, err := p.clusterInfo(nil)
	if err != nil {
		return nil, err
	}
	kubelet, err := yaml.Marshal(p.kubeletConfiguration())
	if err != nil {
		return nil, err
	}
	cluster, err := yaml.Marshal(p.clusterConfiguration())
	if err != nil {
		return nil, err
	}
	out := []joiningObject{{mapsGVR, info}, {mapsGVR, systemMap(kubeletConfig, "kubelet", kubelet)}}
	out = append(out, joiningRoles()...)
	return append(out, joiningObject{mapsGVR, systemMap(kubeadmConfig, "ClusterConfiguration", cluster)}), nil
}

func systemMap(name, key string, text []byte) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name}, Data: map[string]string{key: string(text)}}
}

// clusterInfo is the ConfigMap by which a machine finds the cluster, as it should be: it keeps the server
// that has names as long as that is one.
func (p *joiningPublisher) clusterInfo(has *corev1.ConfigMap) (*corev1.ConfigMap, error) {
	server, err := p.server(has)
	if err != nil {
		return nil, err
	}
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "", "contexts": nil, "users": nil, "preferences": map[string]any{},
		"clusters": []any{map[string]any{"name": "", "cluster": map[string]any{"certificate-authority-data": p.roots, "server": server}}},
	})
	if err != nil {
		return nil, err
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespacePublic, Name: bootstrapapi.ConfigMapClusterInfo,
			Annotations: map[string]string{generatedHash: hashOf(string(text))},
		},
		Data: map[string]string{bootstrapapi.KubeConfigKey: string(text)},
	}, nil
}

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// server is the URL that joining machines are given. Without a configured one it is that of a member:
// the one that they were given before, as long as it is a member, else that of this node.
func (p *joiningPublisher) server(has *corev1.ConfigMap) (string, error) {
	if p.Endpoint != "" {
		return (&url.URL{Scheme: "https", Host: p.Endpoint}).String(), nil
	}
	if has == nil || p.members == nil {
		return p.Server(), nil
	}
	var was struct {
		Clusters []struct{ Cluster struct{ Server string } }
	}
	if err := yaml.Unmarshal([]byte(has.Data[bootstrapapi.KubeConfigKey]), &was); err != nil || len(was.Clusters) != 1 {
		return p.Server(), nil
	}
	members, err := p.members()
	if err != nil {
		return "", fmt.Errorf("list members: %w", err)
	}
	if server := was.Clusters[0].Cluster.Server; slices.Contains(members, server) {
		return server, nil
	}
	return p.Server(), nil
}

// refresh has cluster-info follow the cluster's authority and its members, if it is there and
// still as a node has written it.
func (p *joiningPublisher) refresh(ctx context.Context) error {
	v, err := p.objects.Current(kinds.BuiltinTable(mapsGVR.GroupResource()), metav1.NamespacePublic+"/"+bootstrapapi.ConfigMapClusterInfo)
	now := p.objects.Now()
	if err != nil || v == nil || v == p.info && now.Sub(p.looked) < tokenPeriod {
		return err
	}
	p.info, p.looked = v, now
	var has corev1.ConfigMap
	if err := p.api.Get(ctx, mapsGVR, metav1.NamespacePublic, bootstrapapi.ConfigMapClusterInfo, &has); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	text := has.Data[bootstrapapi.KubeConfigKey]
	if text == "" || has.Annotations[generatedHash] != hashOf(text) {
		return nil
	}
	want, err := p.clusterInfo(&has)
	if err != nil || want.Data[bootstrapapi.KubeConfigKey] == text {
		return err
	}
	has.Data[bootstrapapi.KubeConfigKey] = want.Data[bootstrapapi.KubeConfigKey]
	has.Annotations[generatedHash] = want.Annotations[generatedHash]
	return p.api.Update(ctx, mapsGVR, metav1.NamespacePublic, bootstrapapi.ConfigMapClusterInfo, &has)
}

// clusterConfiguration is kubeadm's, as far as kubeadm join reads it.
func (p *joiningPublisher) clusterConfiguration() map[string]any {
	out := map[string]any{
		"apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "ClusterConfiguration", "clusterName": "kubernetes",
		"kubernetesVersion": p.Version, "certificatesDir": "/etc/kubernetes/pki", "imageRepository": "registry.k8s.io",
	}
	if p.Endpoint != "" {
		out["controlPlaneEndpoint"] = p.Endpoint
	}
	networking := map[string]any{"dnsDomain": clusterDomain}
	var subnets []string
	for _, b := range p.blocks {
		subnets = append(subnets, b.String())
	}
	if len(subnets) > 0 {
		networking["serviceSubnet"] = strings.Join(subnets, ",")
	}
	out["networking"] = networking
	return out
}

// kubeletConfiguration is what kubeadm init writes for kubelets, but for what is each machine's own.
// Their serving certificates are their own (no serverTLSBootstrap): requests for others wait for
// somebody to approve them.
func (p *joiningPublisher) kubeletConfiguration() map[string]any {
	out := map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false},
			"webhook":   map[string]any{"enabled": true, "cacheTTL": "0s"},
			"x509":      map[string]any{"clientCAFile": "/etc/kubernetes/pki/ca.crt"},
		},
		"authorization": map[string]any{"mode": "Webhook"},
		"cgroupDriver":  "systemd", "clusterDomain": clusterDomain,
		"healthzBindAddress": "127.0.0.1", "healthzPort": 10248,
		"rotateCertificates": true, "staticPodPath": "/etc/kubernetes/manifests",
	}
	if a := dnsAddress(p.blocks); a.IsValid() {
		out["clusterDNS"] = []any{a.String()}
	}
	return out
}

// dnsAddress is the tenth address of Services, where kubeadm and others put the cluster's DNS.
func dnsAddress(blocks []netip.Prefix) netip.Addr {
	if len(blocks) == 0 {
		return netip.Addr{}
	}
	a := blocks[0].Addr()
	for range 10 {
		a = a.Next()
	}
	if !blocks[0].Contains(a) {
		return netip.Addr{}
	}
	return a
}

const (
	// joiningGroup has the tokens that kubeadm, and quorate token create --worker, make.
	joiningGroup = "system:bootstrappers:kubeadm:default-node-token"
	nodesGroup   = "system:nodes"
)

// joiningRoles are the roles and bindings that kubeadm init makes for kubeadm join. Nodes themselves get
// no role: what they may do is the node authorizer's to say.
func joiningRoles() []joiningObject {
	role := func(namespace, name, configMap string) joiningObject {
		return joiningObject{rbacv1.SchemeGroupVersion.WithResource("roles"), &rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Rules:      []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{configMap}}},
		}}
	}
	bind := func(namespace, name string, subjects ...rbacv1.Subject) joiningObject {
		return joiningObject{rbacv1.SchemeGroupVersion.WithResource("rolebindings"), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}, Subjects: subjects,
		}}
	}
	bindCluster := func(name, role string, subjects ...rbacv1.Subject) joiningObject {
		return joiningObject{rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings"), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}, Subjects: subjects,
		}}
	}
	tokens := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: joiningGroup}
	nodes := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: nodesGroup}
	anybody := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "system:anonymous"}
	const (
		infoRole    = "kubeadm:bootstrap-signer-clusterinfo"
		kubeadmRole = "kubeadm:nodes-kubeadm-config"
		kubeletRole = "kubeadm:kubelet-config"
		nodesRole   = "kubeadm:get-nodes"
	)
	return []joiningObject{
		role(metav1.NamespacePublic, infoRole, bootstrapapi.ConfigMapClusterInfo),
		bind(metav1.NamespacePublic, infoRole, anybody),
		role(metav1.NamespaceSystem, kubeadmRole, kubeadmConfig),
		bind(metav1.NamespaceSystem, kubeadmRole, tokens, nodes),
		role(metav1.NamespaceSystem, kubeletRole, kubeletConfig),
		bind(metav1.NamespaceSystem, kubeletRole, nodes, tokens),
		{rbacv1.SchemeGroupVersion.WithResource("clusterroles"), &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: nodesRole},
			Rules:      []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"nodes"}}},
		}},
		bindCluster(nodesRole, nodesRole, tokens),
		bindCluster("kubeadm:kubelet-bootstrap", "system:node-bootstrapper", tokens),
		bindCluster("kubeadm:node-autoapprove-bootstrap", "system:certificates.k8s.io:certificatesigningrequests:nodeclient", tokens),
		bindCluster("kubeadm:node-autoapprove-certificate-rotation", "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", nodes),
	}
}
