package ecosystem

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/test/harness/cluster"
)

// project is a set of definitions that somebody else wrote, and what is done with
// it.
type project struct {
	module      string
	apply       []string // how its definitions are applied: flags, and what lies in the module
	count       int
	namespace   string // that the examples need
	explain     string // a deep field
	description string // what explain says of it
	examples    []string
	steps       []step
}

// step is a command of kubectl and what it prints: expressions, over all that it
// prints with runs of spaces as one. A step that begins with ! is refused.
type step struct {
	watch   string // what kubectl get -w shows now, and when all steps are done
	stdin   string
	command string
	prints  []string
}

var projects = []project{
	{
		module: "gateway", apply: []string{"-f", "config/crd/standard"}, count: 10,
		explain: "httproute.spec.rules.filters.requestHeaderModifier.add.name", description: "Name is the name of the HTTP Header to be matched",
		examples: []string{"examples/standard"},
		steps: []step{
			{watch: "gateway prod-web", prints: []string{`^prod-web example Unknown \w+\n`, `Unknown \w+\nprod-web example 10.1.2.3 True`}},
			{command: "get gateway prod-web", prints: []string{`NAME CLASS ADDRESS PROGRAMMED AGE\nprod-web example Unknown \d+s`}},
			{command: `patch gateway prod-web --subresource=status --type=merge -p {"status":{"addresses":[{"type":"IPAddress","value":"10.1.2.3"}],"conditions":[{"type":"Programmed","status":"True","reason":"Programmed","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`, prints: []string{"patched"}},
			{command: "get gateway prod-web", prints: []string{`prod-web example 10.1.2.3 True \d+s`}},
			{command: "get gtw,httproutes,gc -o name", prints: []string{"gateway.gateway.networking.k8s.io/prod-web", "httproute.gateway.networking.k8s.io/foo", "gatewayclass.gateway.networking.k8s.io/example"}},
			{command: "get httproute.v1beta1.gateway.networking.k8s.io foo -o jsonpath={.apiVersion}", prints: []string{`^gateway.networking.k8s.io/v1beta1$`}},
			{command: "get httproute.v1.gateway.networking.k8s.io foo -o jsonpath={.apiVersion}", prints: []string{`^gateway.networking.k8s.io/v1$`}},
			{stdin: `{"apiVersion":"gateway.networking.k8s.io/v1beta1","kind":"HTTPRoute","metadata":{"name":"older"},"spec":{"hostnames":["older.example.com"],"rules":[{"backendRefs":[{"name":"s","port":80}]}]}}`, command: "apply --server-side -f -", prints: []string{"serverside-applied"}},
			{command: "get httproute.v1.gateway.networking.k8s.io older -o jsonpath={.apiVersion},{.spec.rules[0].backendRefs[0].weight},{.spec.rules[0].matches[0].path.type}", prints: []string{`^gateway.networking.k8s.io/v1,1,PathPrefix$`}},
			{stdin: `{"apiVersion":"gateway.networking.k8s.io/v1","kind":"HTTPRoute","metadata":{"name":"older"},"spec":{"hostnames":["newer.example.com"]}}`, command: "apply --server-side -f -", prints: []string{"serverside-applied"}},
			{command: "get httproute.v1beta1.gateway.networking.k8s.io older -o jsonpath={.spec.hostnames},{.spec.rules}", prints: []string{`^\["newer.example.com"\],\[\{"matches":\[\{"path":\{"type":"PathPrefix","value":"/"\}\}\]\}\]$`}},
			{command: `!patch gatewayclass example --type=merge -p {"spec":{"controllerName":"other.example.com/controller"}}`, prints: []string{`spec.controllerName: Invalid value: "?.*Value is immutable`}},
			{stdin: `{"apiVersion":"gateway.networking.k8s.io/v1","kind":"HTTPRoute","metadata":{"name":"typo"},"spec":{"rulez":[]}}`, command: "!apply -f -", prints: []string{`strict decoding error: unknown field "spec.rulez"`}},
		},
	},
	{
		module: "certmanager", apply: []string{"--server-side", "-f", "deploy/crds"}, count: 6,
		explain: "issuer.spec.acme.solvers.dns01.route53.auth.kubernetes.serviceAccountRef", description: "A reference to a service account that will be used to request a bound token",
		examples: []string{"test/fixtures/cert-manager-resources.yaml"},
		steps: []step{
			{command: "get cert -o wide", prints: []string{`NAME READY SECRET ISSUER STATUS AGE\ntest1 test1 selfsigned-issuer \d+s`}},
			{command: "get certificates --field-selector=spec.issuerRef.name=selfsigned-issuer,spec.issuerRef.kind=Issuer -o name", prints: []string{`^certificate.cert-manager.io/test1 certificate.cert-manager.io/test2 ?$`}},
			{command: "get certificates --field-selector=spec.issuerRef.name=other -o name", prints: []string{`^$`}},
			{command: "get cert-manager -o name", prints: []string{"issuer.cert-manager.io/selfsigned-issuer", "certificate.cert-manager.io/test1"}},
			{command: `patch cert test1 --subresource=status --type=merge -p {"status":{"revision":1,"conditions":[{"type":"Ready","status":"True","message":"up to date"}]}}`, prints: []string{"patched"}},
			{command: "get cert test1 -o wide", prints: []string{`test1 True test1 selfsigned-issuer up to date \d+s`}},
			{command: "wait --for=condition=Ready cert/test1 --timeout=10s", prints: []string{"condition met"}},
			{command: `!patch cert test1 --type=merge -p {"spec":{"issuerRef":null}}`, prints: []string{"spec.issuerRef: Required value"}},
			{command: `!patch cert test1 --type=merge -p {"spec":{"privateKey":{"algorithm":"DSA"}}}`, prints: []string{`spec.privateKey.algorithm: Unsupported value: "DSA": supported values: "RSA", "ECDSA", "Ed25519"`}},
			{command: `!patch cert test1 --type=merge -p {"spec":{"dnsNames":"example.com"}}`, prints: []string{`spec.dnsNames in body must be of type array: "string"`}},
		},
	},
	{
		module: "prometheus", apply: []string{"--server-side", "-f", "example/prometheus-operator-crd"}, count: 10,
		explain: "prometheus.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms.matchExpressions.operator", description: "Valid operators are In, NotIn, Exists, DoesNotExist",
		examples: []string{"example/storage/persisted-prometheus.yaml", "example/shards", "example/user-guides/getting-started", "example/thanos/prometheus-rule.yaml"},
		steps: []step{
			{command: "get prometheus persisted", prints: []string{`NAME VERSION DESIRED READY RECONCILED AVAILABLE AGE\npersisted \d+s`}},
			{command: `patch prometheus persisted --type=merge -p {"spec":{"replicas":2,"version":"v3.5.0"}}`, prints: []string{"patched"}},
			{command: `patch prometheus persisted --subresource=status --type=merge -p {"status":{"paused":false,"replicas":2,"updatedReplicas":2,"availableReplicas":2,"unavailableReplicas":0,"shards":1,"selector":"a=b","conditions":[{"type":"Available","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z"},{"type":"Reconciled","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`, prints: []string{"patched"}},
			{command: "get prom persisted -o wide", prints: []string{`persisted v3.5.0 2 2 True True \d+s false`}},
			{command: "scale prometheus persisted --replicas=3", prints: []string{"scaled"}},
			{command: "get --raw /apis/monitoring.coreos.com/v1/namespaces/default/prometheuses/persisted/scale", prints: []string{`"spec":\{"replicas":3\},"status":\{"replicas":1,"selector":"a=b"\}`}},
			{command: "get prometheus persisted -o jsonpath={.spec.shards},{.spec.evaluationInterval},{.spec.storage.volumeClaimTemplate.spec.resources.requests.storage}", prints: []string{`^3,30s,40Gi$`}},
			{command: "get prometheus-operator -o name", prints: []string{"prometheus.monitoring.coreos.com/persisted", "servicemonitor.monitoring.coreos.com/", "prometheusrule.monitoring.coreos.com/"}},
			{command: `!patch prometheus persisted --type=merge -p {"spec":{"scrapeInterval":"often"}}`, prints: []string{`spec.scrapeInterval: Invalid value: "often": spec.scrapeInterval in body should match`}},
			{command: `!patch prometheus persisted --type=merge -p {"spec":{"resources":{"requests":{"cpu":"much"}}}}`, prints: []string{`spec.resources.requests.cpu in body should match`}},
			{stdin: `{"apiVersion":"monitoring.coreos.com/v1","kind":"ServiceMonitor","metadata":{"name":"none"},"spec":{"endpoints":[{"port":"web"}]}}`, command: "!create -f -", prints: []string{"spec.selector: Required value"}},
		},
	},
	{
		module: "argocd", namespace: "argocd", apply: []string{"--server-side", "-k", "manifests/crds"}, count: 3,
		explain: "application.spec.source.helm.valuesObject", description: "ValuesObject specifies Helm values to be passed to helm template",
		examples: []string{"docs/operator-manual/project.yaml", "docs/operator-manual/application.yaml"},
		steps: []step{
			{command: `patch application guestbook -n argocd --type=merge -p {"status":{"sync":{"status":"Synced"},"health":{"status":"Healthy"}}}`, prints: []string{"patched"}},
			{command: "get apps -n argocd", prints: []string{`NAME SYNC STATUS HEALTH STATUS\nguestbook Synced Healthy`}},
			{command: `patch application guestbook -n argocd --type=merge -p {"spec":{"source":{"helm":{"valuesObject":{"any":{"thing":[1,"two"]}}}}}}`, prints: []string{"patched"}},
			{command: "get application guestbook -n argocd -o jsonpath={.spec.source.helm.valuesObject}", prints: []string{`^\{"any":\{"thing":\[1,"two"\]\},"ingress":`}},
			{command: `!patch application guestbook -n argocd --type=merge -p {"spec":{"destination":null}}`, prints: []string{"spec.destination: Required value"}},
			// The examples have finalizers, and nobody acts on them.
			{command: `patch application guestbook -n argocd --type=merge -p {"metadata":{"finalizers":null}}`, prints: []string{"patched"}},
			{command: `patch appproject my-project -n argocd --type=merge -p {"metadata":{"finalizers":null}}`, prints: []string{"patched"}},
		},
	},
}

// TestDefinitions installs the definitions of other projects, with their own
// examples, and takes them away again. Argo CD's module is large: ECOSYSTEM=full.
func TestDefinitions(t *testing.T) {
	r := &turns{c: cluster.Start(t, 3)}
	t.Logf("resident memory of the nodes: %s", r.memory(t))
	installed := 0
	for _, p := range projects {
		t.Run(p.module, func(t *testing.T) {
			if p.module == "argocd" {
				onlyInFull(t)
			}
			p.install(t, r)
			installed += p.count
			p.explained(t, r)
			p.instances(t, r)
		})
	}
	t.Run("invalid", func(t *testing.T) { invalid(t, r) })
	t.Logf("resident memory of the nodes with %d definitions: %s", installed, r.memory(t))
	began := time.Now()
	if got := strings.Count(r.kubectl(t, "delete", "crd", "--all", "--timeout=60s"), "deleted"); got != installed {
		t.Errorf("%d definitions were deleted, want %d", got, installed)
	}
	t.Logf("deleted with all instances in %.1f s", time.Since(began).Seconds())
	for _, n := range r.c.Nodes() {
		cluster.Await(t, 10*time.Second, n.Name+" serves none of it", func() string {
			return regexp.MustCompile(`gateway\.networking|cert-manager|monitoring\.coreos|argoproj`).FindString(string(n.MustGet(t, "/apis")))
		})
	}
	t.Logf("resident memory of the nodes afterwards: %s", r.memory(t))
}

// memory is the resident memory of each node, in MiB.
func (r *turns) memory(t *testing.T) string {
	t.Helper()
	var all []string
	for _, n := range r.c.Nodes() {
		all = append(all, fmt.Sprintf("%.0f MiB", n.Metric(t, "process_resident_memory_bytes")/(1<<20)))
	}
	return strings.Join(all, ", ")
}

// in is arguments with the paths among them in the project's module.
func (p project) in(t *testing.T, args ...string) []string {
	t.Helper()
	dir := moduleDir(t, p.module)
	out := make([]string, len(args))
	for i, a := range args {
		out[i] = a
		if !strings.HasPrefix(a, "-") {
			out[i] = filepath.Join(dir, a)
		}
	}
	return out
}

// install applies the definitions, twice: the second time nothing is written.
func (p project) install(t *testing.T, r *turns) {
	t.Helper()
	args := append([]string{"apply"}, p.in(t, p.apply...)...)
	began := time.Now()
	r.kubectl(t, args...)
	r.kubectl(t, "wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
	t.Logf("%d definitions in %.1f s", p.count, time.Since(began).Seconds())
	versions := func() string {
		return r.kubectl(t, "get", "crd", "-o", `jsonpath={range .items[*]}{.metadata.name} {.metadata.resourceVersion}{"\n"}{end}`)
	}
	before := versions()
	r.kubectl(t, args...)
	if after := versions(); after != before {
		t.Errorf("the second apply has written:\n%s\nbefore:\n%s", after, before)
	}
}

// explained asks for a deep field.
func (p project) explained(t *testing.T, r *turns) {
	t.Helper()
	if text := strings.Join(strings.Fields(r.kubectl(t, "explain", p.explain)), " "); !strings.Contains(text, p.description) {
		t.Errorf("explain %s says\n%s", p.explain, text)
	}
}

var spaces = regexp.MustCompile(`[ \t]+`)

// instances applies the project's examples and takes the steps.
func (p project) instances(t *testing.T, r *turns) {
	t.Helper()
	if p.namespace != "" {
		r.kubectl(t, "create", "namespace", p.namespace)
	}
	for _, e := range p.in(t, p.examples...) {
		r.kubectl(t, "apply", "--recursive", "-f", e)
	}
	for _, s := range p.steps {
		if s.watch != "" {
			seen := r.node().KubectlBackground(t, append([]string{"get", "-w", "--no-headers"}, words(s.watch)...)...)
			shows := func(want string) func() string {
				return func() string {
					if said := spaces.ReplaceAllString(seen.Output(), " "); !regexp.MustCompile(want).MatchString(said) {
						return "it shows " + said
					}
					return ""
				}
			}
			cluster.Await(t, 20*time.Second, "kubectl get -w begins", shows(s.prints[0]))
			defer func() { cluster.Await(t, 20*time.Second, "kubectl get -w goes on", shows(s.prints[1])) }()
			continue
		}
		command, refused := strings.CutPrefix(s.command, "!")
		out := r.node().TryKubectl(t, nil, s.stdin, words(command)...)
		said := strings.ReplaceAll(spaces.ReplaceAllString(out.Stdout+out.Stderr, " "), " \n", "\n")
		if strings.Contains(command, "-o name") {
			said = strings.ReplaceAll(said, "\n", " ")
		}
		if refused != (out.Code != 0) {
			t.Errorf("kubectl %s: exit code %d\n%s", s.command, out.Code, said)
			continue
		}
		for _, want := range s.prints {
			if !regexp.MustCompile(want).MatchString(said) {
				t.Errorf("kubectl %s prints\n%s\nwithout %s", s.command, said, want)
			}
		}
	}
}

// words splits a command at spaces, but not what follows -p.
func words(command string) []string {
	command, patch, ok := strings.Cut(command, " -p ")
	out := strings.Fields(command)
	if ok {
		out = append(out, "-p", patch)
	}
	return out
}

// invalid applies what Gateway API's own tests call invalid.
func invalid(t *testing.T, r *turns) {
	t.Helper()
	dir := filepath.Join(moduleDir(t, "gateway"), "hack", "invalid-examples", "standard")
	b, err := os.ReadFile("testdata/invalid.txt")
	noError(t, err)
	wants := map[string][]string{}
	for _, line := range strings.Split(string(b), "\n") {
		if file, want, ok := strings.Cut(line, " "); ok && !strings.HasPrefix(line, "#") {
			wants[file] = append(wants[file], strings.TrimSpace(want))
		}
	}
	files := 0
	noError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files++
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		out := r.node().TryKubectl(t, nil, "", "create", "-f", path)
		if out.Code == 0 || len(wants[name]) == 0 {
			t.Errorf("%s: exit code %d, %d messages are expected\n%s%s", name, out.Code, len(wants[name]), out.Stdout, out.Stderr)
		}
		for _, want := range wants[name] {
			if !strings.Contains(out.Stderr, want) {
				t.Errorf("%s:\n%s\nwithout\n%s", name, out.Stderr, want)
			}
		}
		return nil
	}))
	if files != len(wants) {
		t.Errorf("%d files, and messages for %d", files, len(wants))
	}
}
