package writes

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"hash/fnv"
	"log/slog"
	"maps"
	mathrand "math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/access/auth"
	ours "github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/plugins"
	"github.com/quorate/quorate/apiserver/admission/suspension"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/apiserver/wire/status"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/judges/random"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/restmapper"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/kubeapiserver/options"
)

// notCompared are plugins without an answer of their own that could differ.
var notCompared = map[string]string{
	"AlwaysAdmit":               "there is none here: it does nothing",
	"ImagePolicyWebhook":        "a backend answers",
	"EventRateLimit":            "it counts by the clock",
	"ResourceQuota":             "TestQuota",
	"MutatingAdmissionPolicy":   "upstream's library",
	"MutatingAdmissionWebhook":  "upstream's library",
	"ValidatingAdmissionPolicy": "upstream's library", "ValidatingAdmissionWebhook": "upstream's library",
	// Their feature gates are closed.
	"PodGroupProtection": "", "PodGroupWorkloadExists": "", "JobValidation": "", "ClusterTrustBundleAttest": "",
}

// target is a write that plugins are asked about.
type target struct {
	resource, subresource string
	operations            string
	kind                  apischema.GroupVersionKind // of the body; zero: the resource's
}

var targets = []target{
	{resource: "pods", operations: "CREATE UPDATE"},
	{resource: "pods", operations: "CREATE UPDATE"},
	{resource: "pods", operations: "CREATE DELETE"},
	{resource: "pods", subresource: "status", operations: "UPDATE"},
	{resource: "pods", subresource: "resize", operations: "UPDATE"},
	{resource: "pods", subresource: "ephemeralcontainers", operations: "UPDATE"},
	{resource: "pods", subresource: "eviction", operations: "CREATE", kind: apischema.GroupVersionKind{Group: "policy", Version: "v1", Kind: "Eviction"}},
	{resource: "pods", subresource: "binding", operations: "CREATE", kind: apischema.GroupVersionKind{Version: "v1", Kind: "Binding"}},
	{resource: "serviceaccounts", subresource: "token", operations: "CREATE", kind: apischema.GroupVersionKind{Group: "authentication.k8s.io", Version: "v1", Kind: "TokenRequest"}},
	{resource: "configmaps", operations: "CREATE UPDATE DELETE"},
	{resource: "namespaces", operations: "CREATE UPDATE DELETE"},
	{resource: "nodes", operations: "CREATE UPDATE DELETE"},
	{resource: "nodes", subresource: "status", operations: "UPDATE"},
	{resource: "services", operations: "CREATE UPDATE"},
	{resource: "persistentvolumeclaims", operations: "CREATE UPDATE"},
	{resource: "persistentvolumeclaims", subresource: "status", operations: "UPDATE"},
	{resource: "persistentvolumes", operations: "CREATE UPDATE"},
	{resource: "replicationcontrollers", operations: "CREATE UPDATE"},
	{resource: "deployments.apps", operations: "CREATE UPDATE"},
	{resource: "jobs.batch", operations: "CREATE"},
	{resource: "ingresses.networking.k8s.io", operations: "CREATE UPDATE"},
	{resource: "priorityclasses.scheduling.k8s.io", operations: "CREATE UPDATE"},
	{resource: "leases.coordination.k8s.io", operations: "CREATE UPDATE DELETE"},
	{resource: "csinodes.storage.k8s.io", operations: "CREATE UPDATE DELETE"},
	{resource: "resourceslices.resource.k8s.io", operations: "CREATE UPDATE DELETE"},
	{resource: "certificatesigningrequests.certificates.k8s.io", operations: "CREATE UPDATE"},
	{resource: "certificatesigningrequests.certificates.k8s.io", subresource: "approval", operations: "UPDATE"},
	{resource: "certificatesigningrequests.certificates.k8s.io", subresource: "status", operations: "UPDATE"},
	{resource: "clustertrustbundles.certificates.k8s.io", operations: "CREATE UPDATE"},
}

// mostly are the resources that plugins are mostly about; those of others are Pods.
var mostly = map[string][]string{
	"NamespaceAutoProvision":               {"configmaps"},
	"NamespaceLifecycle":                   {"configmaps", "namespaces"},
	"NamespaceExists":                      {"configmaps"},
	"NodeRestriction":                      {"pods", "nodes", "serviceaccounts", "leases.coordination.k8s.io", "csinodes.storage.k8s.io", "resourceslices.resource.k8s.io", "persistentvolumeclaims", "certificatesigningrequests.certificates.k8s.io"},
	"TaintNodesByCondition":                {"nodes"},
	"PodSecurity":                          {"pods", "deployments.apps", "jobs.batch", "replicationcontrollers", "namespaces"},
	"Priority":                             {"pods", "priorityclasses.scheduling.k8s.io"},
	"LimitRanger":                          {"pods", "persistentvolumeclaims"},
	"DefaultStorageClass":                  {"persistentvolumeclaims"},
	"StorageObjectInUseProtection":         {"persistentvolumeclaims", "persistentvolumes"},
	"OwnerReferencesPermissionEnforcement": {"pods", "configmaps", "deployments.apps", "nodes"},
	"PersistentVolumeClaimResize":          {"persistentvolumeclaims"},
	"CertificateApproval":                  {"certificatesigningrequests.certificates.k8s.io"},
	"CertificateSigning":                   {"certificatesigningrequests.certificates.k8s.io"},
	"CertificateSubjectRestriction":        {"certificatesigningrequests.certificates.k8s.io"},
	"DefaultIngressClass":                  {"ingresses.networking.k8s.io"},
	"DenyServiceExternalIPs":               {"services"},
}

// targetsOf are the targets that a plugin is asked about, and all others once.
func targetsOf(plugin string) []target {
	about := mostly[plugin]
	if about == nil {
		about = []string{"pods"}
	}
	var main []target
	for _, x := range targets {
		if slices.Contains(about, x.resource) {
			main = append(main, x)
		}
	}
	out := slices.Clone(targets)
	for len(out) < 4*len(targets) {
		out = append(out, main...)
	}
	return out
}

// vocabulary are the names of what is there, and what plugins look for.
var vocabulary = []string{
	"", "a", "a", "b", "n", "Node", "Node", "default", "gone", "system-node-critical", "system-cluster-critical", "Always", "Never", "IfNotPresent", "NoSchedule", "NoExecute", "Exists", "Equal",
	"kubernetes.io/hostname", "kubernetes.io/kube-apiserver-client", "kubernetes.io/kubelet-serving", "example.com/a", "topology.kubernetes.io/zone", "v1", "apps/v1", "ConfigMap", "Deployment", "In",
	"node.kubernetes.io/not-ready", "linux", "windows", "cpu", "cpu", "memory", "memory", "storage", "NotReady", "Approved", "u", "v",
}

// users are those that write.
var users = []user.DefaultInfo{
	{Name: "admin", Groups: []string{"system:masters", "system:authenticated"}},
	{Name: "alice", Groups: []string{"system:authenticated"}},
	{Name: "system:node:a", Groups: []string{"system:nodes", "system:authenticated"}},
	{Name: "system:node:n", Groups: []string{"system:nodes", "system:authenticated"}},
	{Name: "system:serviceaccount:default:default", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"}},
}

// allowed is who may do what: a third of everything.
func allowed(about ...string) bool {
	h := fnv.New32a()
	_, _ = h.Write([]byte(strings.Join(about, "|")))
	return h.Sum32()%3 == 0
}

const reason = "as the dice say"

type oursAllowed struct{}

func (oursAllowed) Authorize(_ context.Context, a auth.Attributes) (auth.Decision, string, error) {
	if allowed(a.User.Name, a.Verb, a.APIGroup, a.APIVersion, a.Resource, a.Subresource, a.Namespace, a.Name) {
		return auth.Allow, reason, nil
	}
	return auth.NoOpinion, reason, nil
}

type theirsAllowed struct{}

func (theirsAllowed) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if allowed(a.GetUser().GetName(), a.GetVerb(), a.GetAPIGroup(), a.GetAPIVersion(), a.GetResource(), a.GetSubresource(), a.GetNamespace(), a.GetName()) {
		return authorizer.DecisionAllow, reason, nil
	}
	return authorizer.DecisionNoOpinion, reason, nil
}

// ask is a write that both are asked about.
type ask struct {
	target
	res       *kinds.Resource
	kind      apischema.GroupVersionKind
	operation admission.Operation
	validated bool // only validators are asked
	name      string
	namespace string
	user      *user.DefaultInfo
	obj, old  tree.Object
}

// answered is what comes of it.
type answered struct {
	obj      tree.Object
	err      error
	panicked bool
}

// contain is for plugins that end with a panic, about objects that are not valid.
func (a *answered) contain() {
	if recover() != nil {
		a.panicked = true
	}
}

func (a *ask) ours(t *testing.T, chain *ours.Chain) (out answered) {
	defer out.contain()
	own := func(obj tree.Object) tree.Object {
		if obj == nil {
			return nil
		}
		return runtime.DeepCopyJSON(obj)
	}
	attributes := &ours.Attributes{
		Operation: a.operation, Kind: a.kind, Resource: a.res.GVR(), Subresource: a.subresource, Namespace: a.namespace, Name: a.name,
		User: &auth.User{Name: a.user.Name, Groups: a.user.Groups}, Object: own(a.obj), Old: own(a.old),
	}
	if a.operation == admission.Delete {
		attributes.DeleteOptions = &metav1.DeleteOptions{}
	}
	ctx := context.Background()
	if !chain.Handles(attributes) {
		return answered{obj: a.kept(t, attributes.Object)}
	}
	var err error
	if !a.validated {
		err = chain.Admit(ctx, attributes)
	}
	if err == nil {
		err = chain.Validate(ctx, attributes)
	}
	return answered{obj: a.kept(t, attributes.Object), err: err}
}

// kept is an object as it is read after it was stored.
func (a *ask) kept(t *testing.T, obj tree.Object) tree.Object {
	if obj == nil {
		return nil
	}
	internal, err := random.Read(t, obj, a.kind)
	must.OK(t, err)
	kept, err := random.Keep(internal, a.kind)
	must.OK(t, err)
	return random.Tree(t, kept)
}

func (a *ask) theirs(t *testing.T, plugin admission.Interface) (out answered) {
	defer out.contain()
	internal := func(obj tree.Object) runtime.Object {
		if obj == nil {
			return nil
		}
		out, err := random.Read(t, obj, a.kind)
		must.OK(t, err)
		return out
	}
	obj, old := internal(a.obj), internal(a.old)
	var opts runtime.Object = &metav1.CreateOptions{}
	switch a.operation {
	case admission.Update:
		opts = &metav1.UpdateOptions{}
	case admission.Delete:
		opts = &metav1.DeleteOptions{}
	}
	attributes := admission.NewAttributesRecord(obj, old, a.kind, a.namespace, a.name, a.res.GVR(), a.subresource, a.operation, opts, false, a.user)
	interfaces := admission.NewObjectInterfacesFromScheme(legacyscheme.Scheme)
	ctx := context.Background()
	if !plugin.Handles(a.operation) {
		return answered{obj: a.kept(t, a.obj)}
	}
	var err error
	if m, ok := plugin.(admission.MutationInterface); ok && !a.validated {
		err = m.Admit(ctx, attributes, interfaces)
	}
	if v, ok := plugin.(admission.ValidationInterface); ok && err == nil {
		err = v.Validate(ctx, attributes, interfaces)
	}
	if obj == nil || err != nil {
		return answered{err: err}
	}
	shown, err := legacyscheme.Scheme.ConvertToVersion(obj, a.kind.GroupVersion())
	must.OK(t, err)
	return answered{obj: a.kept(t, random.Tree(t, shown))}
}

// asker makes asks of a seed.
type asker struct {
	t        *testing.T
	registry *kinds.Registry
	world    *world
	requests []string // for certificates, in PEM
}

func (r *asker) ask(seed int64, targets []target) *ask {
	c := mathrand.New(mathrand.NewPCG(uint64(seed), 3))
	a := &ask{target: targets[int(seed)%len(targets)], user: &users[c.IntN(len(users))], namespace: []string{"default", "default", "default", "strict", "tidy", "tidy", "ending", "gone"}[c.IntN(8)]}
	for _, res := range r.registry.All() {
		if res.CodeName() == a.resource && (a.res == nil || res.Version == "v1") && legacyscheme.Scheme.Recognizes(res.GVK()) {
			a.res = res
		}
	}
	a.validated = c.IntN(3) == 0
	operations := strings.Fields(a.operations)
	a.operation = admission.Operation(operations[c.IntN(len(operations))])
	if a.kind = a.target.kind; a.kind.Empty() {
		a.kind = a.res.GVK()
	}
	switch {
	case !a.res.Namespaced:
		a.namespace = ""
	case a.resource == "namespaces":
		a.namespace = a.name
	}
	a.name = []string{"n", "a", "b", "kube-node-lease"}[c.IntN(4)]
	switch {
	case a.resource == "namespaces":
		a.name = []string{"n", "default", "ending", "kube-system"}[c.IntN(4)]
		a.namespace = a.name // as upstream has it
	case !a.res.Namespaced:
		a.namespace = ""
	}
	if a.resource == "pods" && a.operation == admission.Delete {
		a.namespace, a.name = "default", []string{"n", "a"}[c.IntN(2)] // upstream reads the Pod that is there
	}
	obj := r.body(a, seed)
	switch a.operation {
	case admission.Create:
		a.obj = obj
	case admission.Update:
		a.old = obj
		a.obj = r.completed(a, mixed(c, obj, r.body(a, seed+1<<32)).(tree.Object))
	case admission.Delete:
		a.old = obj
		if there := r.there(a); there != nil {
			a.old = there
		}
	}
	return a
}

// there is the object that a write is about, if the world has it.
func (r *asker) there(a *ask) tree.Object {
	for _, obj := range r.world.objects {
		m, err := meta.Accessor(obj)
		must.OK(r.t, err)
		if obj.GetObjectKind().GroupVersionKind() == a.kind && m.GetName() == a.name && m.GetNamespace() == a.namespace {
			return r.completed(a, random.Tree(r.t, obj))
		}
	}
	return nil
}

// body is a random object that is complete.
func (r *asker) body(a *ask, seed int64) tree.Object {
	obj, err := legacyscheme.Scheme.New(a.kind)
	must.OK(r.t, err)
	filler := random.Filler{Words: vocabulary, Absent: 0.5, Metadata: metadata}
	if seed%2 == 0 {
		filler.Absent = 0.8
	}
	filler.Fill(seed, obj)
	m, err := meta.Accessor(obj)
	must.OK(r.t, err)
	m.SetName(a.name)
	m.SetNamespace(a.namespace)
	if a.resource == "namespaces" {
		m.SetNamespace("")
	}
	c := mathrand.New(mathrand.NewPCG(uint64(seed), 4))
	if owners := m.GetOwnerReferences(); len(owners) > 0 {
		word := func() string { return vocabulary[c.IntN(len(vocabulary))] }
		block := c.IntN(2) == 0
		owners[0] = metav1.OwnerReference{APIVersion: []string{"", "v1", "apps/v1", "a/b/c"}[c.IntN(4)], Kind: []string{"", "ConfigMap", "Deployment", "Node", "configmap"}[c.IntN(5)], Name: word(), UID: "u", BlockOwnerDeletion: &block}
	}
	obj.GetObjectKind().SetGroupVersionKind(a.kind)
	out := random.Tree(r.t, obj)
	switch {
	case strings.HasPrefix(a.resource, "certificatesigningrequests"):
		tree.As(out["spec"])["request"] = r.requests[c.IntN(len(r.requests))]
	case a.kind.Kind == "Pod":
		delete(tree.As(out["status"]), "qosClass") // upstream believes the client (docs/differences.md)
	}
	return r.completed(a, out)
}

// completed is an object with its defaults, as upstream shows it.
func (r *asker) completed(a *ask, obj tree.Object) tree.Object {
	internal, err := random.Read(r.t, obj, a.kind)
	must.OK(r.t, err)
	shown, err := legacyscheme.Scheme.ConvertToVersion(internal, a.kind.GroupVersion())
	must.OK(r.t, err)
	shown.GetObjectKind().SetGroupVersionKind(a.kind)
	return random.Tree(r.t, shown)
}

// certificateRequests are of some subjects, in base64.
func certificateRequests(t *testing.T) (out []string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.OK(t, err)
	for _, groups := range [][]string{nil, {"system:masters"}, {"system:nodes"}} {
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "a", Organization: groups}}, key)
		must.OK(t, err)
		body := tree.Object{"x": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})}
		_, encoded, _ := strings.Cut(string(text(body)), `":"`)
		out = append(out, strings.TrimSuffix(encoded, `"}`))
	}
	return append(out, "eA==")
}

// generated is the name of a Pod's volume with its token.
var generated = regexp.MustCompile(`kube-api-access-[a-z0-9]{5}`)

func withoutGenerated(v any) any {
	switch x := v.(type) {
	case tree.Object:
		for name := range x {
			x[name] = withoutGenerated(x[name])
		}
	case []any:
		for i := range x {
			x[i] = withoutGenerated(x[i])
		}
	case string:
		return generated.ReplaceAllString(x, "kube-api-access")
	}
	return v
}

// discovered is what a client finds out about the resources of a registry.
func discovered(registry *kinds.Registry) (groups []*restmapper.APIGroupResources) {
	byGroup := map[string]*restmapper.APIGroupResources{}
	for _, res := range registry.All() {
		g := byGroup[res.Group]
		if g == nil {
			g = &restmapper.APIGroupResources{Group: metav1.APIGroup{Name: res.Group}, VersionedResources: map[string][]metav1.APIResource{}}
			byGroup[res.Group], groups = g, append(groups, g)
		}
		if g.VersionedResources[res.Version] == nil {
			version := metav1.GroupVersionForDiscovery{GroupVersion: res.GroupVersion().String(), Version: res.Version}
			g.Group.Versions = append(g.Group.Versions, version)
		}
		g.VersionedResources[res.Version] = append(g.VersionedResources[res.Version], metav1.APIResource{Name: res.Plural, Kind: res.Kind, Namespaced: res.Namespaced})
	}
	return groups
}

// upstreamPlugin is upstream's plugin of a name.
func upstreamPlugin(t *testing.T, w *world, registry *kinds.Registry, name string) admission.Interface {
	client := fake.NewClientset(w.objects...)
	factory := informers.NewSharedInformerFactory(client, 0)
	mapper := restmapper.NewDiscoveryRESTMapper(discovered(registry))
	start := initializer.New(client, nil, factory, theirsAllowed{}, utilfeature.DefaultFeatureGate, basecompatibility.NewEffectiveVersionFromString("1.36", "", ""), t.Context().Done(), mapper)
	all := admission.NewPlugins()
	options.RegisterAllAdmissionPlugins(all)
	lifecycle.Register(all)
	plugin, err := all.InitPlugin(name, nil, start)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	return plugin
}

// ourPlugin is a chain of one plugin.
func ourPlugin(t *testing.T, w *world, registry *kinds.Registry, name string) *ours.Chain {
	log := slog.New(slog.DiscardHandler)
	chain, err := plugins.New(plugins.Config{
		Enable: []string{name}, Disable: slices.DeleteFunc(plugins.Defaults(), func(other string) bool { return other == name }),
		Store: w.store, Confirm: func(context.Context) error { return nil }, CreateNamespace: func(context.Context, string) error { return nil },
		NotReadySeconds: 300, UnreachableSeconds: 300, Suspensions: suspension.NewView(w.store, time.Now, log),
		Authorizer: oursAllowed{}, Kinds: func() *kinds.Registry { return registry }, Log: log,
	})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return chain
}

// TestPluginNames: the plugins that are on by default are upstream's, in the same order, and NodeRestriction.
func TestPluginNames(t *testing.T) {
	off := options.DefaultOffAdmissionPlugins()
	var want []string
	for _, name := range options.AllOrderedPlugins {
		if !off.Has(name) || name == "NodeRestriction" {
			want = append(want, name)
		}
	}
	slices.Sort(want)
	got := plugins.Defaults()
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("on by default are %q, upstream %q", got, want)
	}
}

// TestPlugins: plugins make of a write what upstream's make of it, and refuse it with the same words.
func TestPlugins(t *testing.T) {
	registry, err := kinds.Available()
	must.OK(t, err)
	w := newWorld(t, strings.Split(strings.TrimSpace(there), "\n"))
	accepted := random.Known(t, "testdata/plugins.txt")
	r := &asker{t: t, registry: registry, world: w, requests: certificateRequests(t)}
	compared, tried, refused, changed := 0, 0, 0, 0
	for _, name := range options.AllOrderedPlugins {
		if _, ok := notCompared[name]; ok {
			continue
		}
		compared++
		before := refused + changed
		upstream, chain := upstreamPlugin(t, w, registry, name), ourPlugin(t, w, registry, name)
		found := random.Differences{}
		all := targetsOf(name)
		for n := range *count * 8 {
			a := r.ask(*first+int64(n), all)
			theirs, ours := a.theirs(t, upstream), a.ours(t, chain)
			tried++
			at := string(a.operation) + " " + a.resource + "/" + a.subresource
			if a.validated {
				at = "validated " + at
			}
			if theirs.err != nil {
				refused++
			}
			switch {
			case theirs.panicked != ours.panicked:
				found.Add(at+" panics", theirs.panicked, ours.panicked)
			case theirs.panicked:
			case theirs.err != nil && ours.err != nil:
				got, want := status.From(ours.err), responsewriters.ErrorToAPIStatus(theirs.err)
				if got.Code != want.Code || got.Message != want.Message {
					found.Add(at+" refuses", want.Message, got.Message)
				}
			case theirs.err != nil:
				found.Add(at+" refused upstream", theirs.err.Error(), "")
			case ours.err != nil:
				found.Add(at+" refused here", "", ours.err.Error())
			case theirs.obj != nil:
				if !tree.Equal(theirs.obj, a.kept(t, a.obj)) {
					changed++
				}
				found.Compare(at, withoutGenerated(theirs.obj), withoutGenerated(ours.obj))
			}
		}
		if refused+changed == before && name != "NamespaceAutoProvision" { // which makes another object
			t.Errorf("%s: nothing was refused or changed", name)
		}
		for _, path := range slices.Sorted(maps.Keys(found)) {
			if !accept(accepted, name+" "+path) {
				t.Errorf("%s, %s: %d: %s", name, path, found[path].Count, found[path].Example)
			}
		}
	}
	t.Logf("%d plugins, %d writes, of which upstream refused %d and changed %d", compared, tried, refused, changed)
}
