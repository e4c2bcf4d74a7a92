package controllers

import (
	"encoding/base64"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/quorate/quorate/internal/must"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// members are a cluster's API addresses, which a test changes.
type members struct {
	mu   sync.Mutex
	urls []string
}

func (m *members) list() ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.urls, nil
}

func (m *members) set(urls ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.urls = urls
}

func joiningConfig(m *members) Config {
	return Config{
		Controllers: []Name{KubeadmConfigController}, Roots: []byte("the roots"),
		Servers:       Servers{List: m.list},
		ServiceBlocks: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00::/108")},
		Joining:       Joining{Server: func() string { return "https://n1:6443" }, Version: "v1.36.3"},
	}
}

// server is where cluster-info sends machines, and whom it has them trust.
func (e *env) server() string {
	e.t.Helper()
	var m corev1.ConfigMap
	if err := e.client.Get(e.t.Context(), mapsGVR, "kube-public", "cluster-info", &m); err != nil {
		return err.Error()
	}
	var k struct {
		Clusters []struct {
			Cluster struct {
				Server string
				CA     string `json:"certificate-authority-data"`
			}
		}
	}
	if err := yaml.Unmarshal([]byte(m.Data["kubeconfig"]), &k); err != nil || len(k.Clusters) != 1 {
		return m.Data["kubeconfig"]
	}
	ca, err := base64.StdEncoding.DecodeString(k.Clusters[0].Cluster.CA)
	must.OK(e.t, err)
	return k.Clusters[0].Cluster.Server + " " + string(ca)
}

func (e *env) awaitServer(want string) {
	e.t.Helper()
	e.await("cluster-info", func() string {
		if got := e.server(); got != want {
			return got + ", want " + want
		}
		return ""
	})
}

// TestJoining: what kubeadm join reads is made once. What is deleted or edited of it stays so in the
// next terms, and if kubeadm-config is deleted what is missing comes again.
func TestJoining(t *testing.T) {
	m := &members{urls: []string{"https://n1:6443"}}
	e := newEnv(t, joiningConfig(m))
	e.run()
	made := func(want bool) {
		t.Helper()
		e.await("kubeadm-config", func() string {
			if has := strings.Contains(strings.Join(e.keys("configmaps"), " "), "kube-system/kubeadm-config"); has != want {
				return "there are: " + strings.Join(e.keys("configmaps"), " ")
			}
			return ""
		})
	}
	made(true)
	e.awaitServer("https://n1:6443 the roots")
	if got := strings.Join(e.keys("configmaps"), " "); got != "kube-public/cluster-info kube-system/kubeadm-config kube-system/kubelet-config" {
		t.Errorf("ConfigMaps: %s", got)
	}
	if got := strings.Join(e.keys("clusterrolebindings.rbac.authorization.k8s.io"), " "); got !=
		"kubeadm:get-nodes kubeadm:kubelet-bootstrap kubeadm:node-autoapprove-bootstrap kubeadm:node-autoapprove-certificate-rotation" {
		t.Errorf("bindings: %s", got)
	}
	var maps [2]corev1.ConfigMap
	for i, name := range [...]string{"kubeadm-config", "kubelet-config"} {
		must.OK(t, e.client.Get(t.Context(), mapsGVR, "kube-system", name, &maps[i]))
	}
	for text, in := range map[string]string{
		"serviceSubnet: 10.96.0.0/16,fd00::/108": maps[0].Data["ClusterConfiguration"], "kubernetesVersion: v1.36.3": maps[0].Data["ClusterConfiguration"],
		"- 10.96.0.10": maps[1].Data["kubelet"], "enabled: false": maps[1].Data["kubelet"], "clientCAFile: /etc/kubernetes/pki/ca.crt": maps[1].Data["kubelet"],
	} {
		if !strings.Contains(in, text) {
			t.Errorf("%q is not in\n%s", text, in)
		}
	}

	// An administrator has turned approval off and edited what kubelets are told.
	bindings := rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings")
	var b rbacv1.ClusterRoleBinding
	must.OK(t, e.client.Get(t.Context(), bindings, "", "kubeadm:node-autoapprove-bootstrap", &b))
	must.OK(t, e.client.Delete(t.Context(), bindings, "", b.Name, b.UID))
	maps[1].Data["kubelet"] = "edited"
	must.OK(t, e.client.Update(t.Context(), mapsGVR, "kube-system", "kubelet-config", &maps[1]))
	e.stop()
	e.manager.cfg.Roots = []byte("other roots")
	e.run() // the next term
	e.awaitServer("https://n1:6443 other roots")
	if got := strings.Join(e.keys("clusterrolebindings.rbac.authorization.k8s.io"), " "); strings.Contains(got, "kubeadm:node-autoapprove-bootstrap") {
		t.Errorf("bindings that were deleted come again: %s", got)
	}
	must.OK(t, e.client.Delete(t.Context(), mapsGVR, "kube-system", "kubeadm-config", maps[0].UID))
	made(true)
	if got := strings.Join(e.keys("clusterrolebindings.rbac.authorization.k8s.io"), " "); !strings.Contains(got, "kubeadm:node-autoapprove-bootstrap") {
		t.Errorf("without kubeadm-config what is missing does not come: %s", got)
	}
	var kept corev1.ConfigMap
	if err := e.client.Get(t.Context(), mapsGVR, "kube-system", "kubelet-config", &kept); err != nil || kept.Data["kubelet"] != "edited" {
		t.Errorf("kubelet-config: %v, %v", kept.Data, err)
	}
}

// TestClusterInfoFollows: cluster-info keeps its server while that is a member, no matter who leads, and follows
// members and the configured endpoint; what was edited stays.
func TestClusterInfoFollows(t *testing.T) {
	m := &members{urls: []string{"https://n1:6443", "https://n2:6443"}}
	e := newEnv(t, joiningConfig(m))
	term := func(change func(*Config), want string) {
		t.Helper()
		if e.stop != nil {
			e.stop()
		}
		change(&e.manager.cfg)
		e.run()
		e.awaitServer(want)
	}
	term(func(*Config) {}, "https://n1:6443 the roots")
	// Another node leads, and its roots show that it has looked.
	term(func(c *Config) {
		c.Joining.Server, c.Roots = func() string { return "https://n2:6443" }, []byte("2")
	}, "https://n1:6443 2")
	term(func(*Config) { m.set("https://n2:6443", "https://n3:6443") }, "https://n2:6443 2")
	term(func(c *Config) { c.Joining.Endpoint = "lb.example.org:443" }, "https://lb.example.org:443 2")
	e.stop()
	var info corev1.ConfigMap
	must.OK(t, e.client.Get(t.Context(), mapsGVR, "kube-public", "cluster-info", &info))
	edit := func(data map[string]string, want string) {
		t.Helper()
		info.Data = data
		must.OK(t, e.client.Update(t.Context(), mapsGVR, "kube-public", "cluster-info", &info))
		p := &joiningPublisher{base: e.base, Joining: e.manager.cfg.Joining, members: m.list, roots: e.manager.cfg.Roots}
		if err := p.refresh(t.Context()); err != nil || p.info == nil {
			t.Errorf("%v, %v", p.info, err)
		}
		if got := e.server(); got != want {
			t.Errorf("an edited cluster-info becomes %s", got)
		}
		must.OK(t, e.client.Get(t.Context(), mapsGVR, "kube-public", "cluster-info", &info))
	}
	edit(map[string]string{"kubeconfig": "edited"}, "edited")
	info.Annotations[generatedHash] = hashOf("") // as if a node had written nothing
	edit(nil, "")
}
