package ecosystem

import (
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/test/harness/cluster"
)

// TestGatekeeper runs Gatekeeper against three nodes: it validates, mutates, audits and
// makes policies; and while it is dead, stopped, flapping or wrongly certified, while a
// server that lies has taken its place, and while the leader changes, nothing enters that
// it would refuse, unless its configuration says so.
func TestGatekeeper(t *testing.T) {
	onlyInFull(t)
	g := startGatekeeper(t)
	t.Run("validates", g.validates)
	t.Run("mutates", g.mutates)
	t.Run("audits", g.audits)
	t.Run("makes policies", g.makesPolicies)
	t.Run("mends its CA", g.mendsCA)

	// An audit writes the status of constraints, which are parameters of policies; each change
	// of those has every write decided again that is under way. It is not among the faults.
	g.auditEvery(t, 3600)
	g.quiet(t, "testdata/gatekeeper/judged.yaml")
	g.enforced(t, "k8srequiredlabels", "configmaps-need-an-owner")
	g.configure(t, "timeoutSeconds", "1")
	g.configure(t, "failurePolicy", `"Fail"`)
	invalid := "received invalid webhook response: "
	for _, x := range []struct {
		name   string
		breaks func(*testing.T)
		mends  func(*testing.T)
		says   string
	}{
		// The first call may take a connection from before, of which the node does not know yet that it is closed.
		{name: "killed", breaks: g.kill, mends: g.start, says: g.refused(`(connect: connection refused|broken pipe|connection reset by peer|EOF)`)},
		{name: "stopped", breaks: g.freeze, mends: g.thaw, says: g.refused(`context deadline exceeded`)},
		{name: "wrongly certified", breaks: g.otherCA, mends: g.rightCA, says: g.refused(`x509: certificate signed by unknown authority`)},
		{name: "gone", breaks: g.gone, mends: g.start, says: g.refused(`no endpoints available for service "gatekeeper-webhook-service"`)},
		{name: "wrong uid", breaks: g.lies(answer{UID: "of-another"}), mends: g.replaceLiar, says: invalid + `expected response.uid="[0-9a-f-]+", got "of-another"`},
		{name: "wrong kind", breaks: g.lies(answer{Kind: "Pod"}), mends: g.replaceLiar, says: `failed to call webhook: .*no kind "Pod" is registered`},
		{name: "wrong version", breaks: g.lies(answer{Version: "admission.k8s.io/v1beta1"}), mends: g.replaceLiar, says: `failed to call webhook: converting \(v1beta1.AdmissionReview\) to \(v1.AdmissionReview\): unknown conversion$`},
		{name: "huge", breaks: g.lies(answer{Bytes: 64 << 20}), mends: g.replaceLiar, says: `failed to call webhook: .*the answer has more than 8388608 bytes`},
	} {
		t.Run(x.name, func(t *testing.T) { g.fails(t, strings.ReplaceAll(x.name, " ", "-"), x.breaks, x.mends, x.says) })
	}
	t.Run("suspended", g.suspended)
	g.configure(t, "timeoutSeconds", "10")
	t.Run("flapping", func(t *testing.T) {
		g.storms(t, "flapping", 4, func(t *testing.T) {
			g.kill(t)
			g.start(t)
		})
	})
	t.Run("leader changes", g.leaderChanges)
}

// validates: what Gatekeeper's own examples refuse, asked through every node.
func (g *gatekeeper) validates(t *testing.T) {
	g.template(t, filepath.Join(g.module, "demo/basic/templates/k8srequiredlabels_template.yaml"), "k8srequiredlabels")
	g.quiet(t, filepath.Join(g.module, "demo/basic/constraints/all_ns_must_have_gatekeeper.yaml"))
	g.enforced(t, "k8srequiredlabels", "ns-must-have-gk")
	const denied = "Error from server (Forbidden): "
	webhook := func(name, says string) string {
		return fmt.Sprintf("admission webhook %q denied the request: %s\n", name, says)
	}
	for i, node := range g.c.Nodes() {
		refused, want := fmt.Sprintf("refused-%d", i), denied+webhook(g.webhook, `[ns-must-have-gk] you must provide labels: {"gatekeeper"}`)
		for _, args := range [][]string{{}, {"--dry-run=server"}} {
			if out := node.TryKubectl(t, nil, "", append([]string{"create", "namespace", refused}, args...)...); out.Code == 0 || out.Stderr != want {
				t.Errorf("%s: create namespace %q: %d %q, want %q", node.Name, args, out.Code, out.Stderr, want)
			}
		}
		good := fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"good-%d","labels":{"gatekeeper":"yes"}}}`, i)
		if out := node.TryKubectl(t, nil, good, "apply", "-f", "-"); out.Code != 0 || out.Stderr != "" {
			t.Errorf("%s: %d %s", node.Name, out.Code, out.Stderr)
		}
		out := node.TryKubectl(t, nil, "", "label", "namespace", fmt.Sprintf("good-%d", i), "gatekeeper-")
		if want := strings.TrimPrefix(want, denied); out.Code == 0 || !strings.HasSuffix(out.Stderr, want) {
			t.Errorf("%s: the label is taken away: %d %q, want %q", node.Name, out.Code, out.Stderr, want)
		}
		out = node.TryKubectl(t, nil, "", "label", "namespace", fmt.Sprintf("good-%d", i), "admission.gatekeeper.sh/ignore=yes")
		if want := webhook("check-ignore-label.gatekeeper.sh", "Only exempt namespace can have the admission.gatekeeper.sh/ignore label"); out.Code == 0 || !strings.HasSuffix(out.Stderr, want) {
			t.Errorf("%s: the label that exempts: %d %q, want %q", node.Name, out.Code, out.Stderr, want)
		}
		// What is Gatekeeper's own is judged too.
		out = node.TryKubectl(t, nil, "", "apply", "-f", filepath.Join(g.module, "demo/basic/bad/bad_template.yaml"))
		if out.Code == 0 || !strings.Contains(out.Stderr, `admission webhook "validation.gatekeeper.sh" denied the request: `) {
			t.Errorf("%s: a template that is not Rego: %d %q", node.Name, out.Code, out.Stderr)
		}
	}
}

// mutates: what Assign and AssignMetadata set, through every node.
func (g *gatekeeper) mutates(t *testing.T) {
	g.quiet(t, "testdata/gatekeeper/mutations.yaml")
	for _, name := range []string{"assignmetadata/cost-centre", "assign/pull-always"} {
		cluster.Await(t, time.Minute, name+" is enforced", func() string {
			if got := g.kubectl(t, "get", name, "-o", `jsonpath={range .status.byPod[*]}{.enforced} {end}`); got != "true true " {
				return got
			}
			return ""
		})
	}
	for i, node := range g.c.Nodes() {
		pod := fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"mutated-%d"},"spec":{"containers":[
			{"name":"a","image":"a:1","imagePullPolicy":"IfNotPresent"},{"name":"b","image":"b:1","imagePullPolicy":"Never"}]}}`, i)
		if out := node.TryKubectl(t, nil, pod, "create", "-f", "-"); out.Code != 0 {
			t.Fatalf("%s: %s", node.Name, out.Stderr)
		}
		got := node.Kubectl(t, "get", "pod", fmt.Sprintf("mutated-%d", i), "-o", "jsonpath={.metadata.labels.cost-centre} {.spec.containers[*].imagePullPolicy}")
		if want := "mill Always Always"; got != want {
			t.Errorf("%s: the Pod has %q, want %q", node.Name, got, want)
		}
	}
}

// audits: what was there before the constraint stands in its status, until it is mended.
func (g *gatekeeper) audits(t *testing.T) {
	for _, change := range []string{"", "gatekeeper=yes"} {
		if change != "" {
			g.kubectl(t, "label", "namespace", "kube-public", change)
		}
		want := strings.Fields(g.kubectl(t, "get", "namespaces", "-l", "!gatekeeper", "-o", "jsonpath={.items[*].metadata.name}"))
		slices.Sort(want)
		cluster.Await(t, time.Minute, "the audit's violations", func() string {
			var status struct {
				Status struct {
					TotalViolations int
					Violations      []struct{ Name, Message string }
				}
			}
			noError(t, json.Unmarshal([]byte(g.kubectl(t, "get", "k8srequiredlabels", "ns-must-have-gk", "-o", "json")), &status))
			var got []string
			for _, v := range status.Status.Violations {
				if v.Message != `you must provide labels: {"gatekeeper"}` {
					return v.Message
				}
				got = append(got, v.Name)
			}
			slices.Sort(got)
			if !slices.Equal(got, want) || status.Status.TotalViolations != len(want) {
				return fmt.Sprintf("%d: %q, want %q", status.Status.TotalViolations, got, want)
			}
			return ""
		})
		t.Logf("violations: %q", want)
	}
}

// makesPolicies: a template in CEL becomes a ValidatingAdmissionPolicy and its constraint a
// binding, which every node enforces by itself.
func (g *gatekeeper) makesPolicies(t *testing.T) {
	g.template(t, "testdata/gatekeeper/cel.yaml", "replicalimits")
	g.quiet(t, "testdata/gatekeeper/few-replicas.yaml")
	cluster.Await(t, time.Minute, "the policy and its binding", func() string {
		if out := g.node().TryKubectl(t, nil, "", "get", "validatingadmissionpolicy/gatekeeper-replicalimits", "validatingadmissionpolicybinding/gatekeeper-replicalimits-few-replicas"); out.Code != 0 {
			return out.Stderr + g.kubectl(t, "get", "replicalimits", "few-replicas", "-o", "jsonpath={.status}")
		}
		return ""
	})
	g.policyHolds(t)
}

// policyHolds asks every node.
func (g *gatekeeper) policyHolds(t *testing.T) {
	t.Helper()
	for _, node := range g.c.Nodes() {
		out := node.TryKubectl(t, nil, "", "create", "deployment", "many", "--image=mill:1", "--replicas=4", "--dry-run=server")
		const want = `ValidatingAdmissionPolicy 'gatekeeper-replicalimits' with binding 'gatekeeper-replicalimits-few-replicas' denied request: at most 3 replicas`
		if out.Code == 0 || !strings.Contains(out.Stderr, want) {
			t.Errorf("%s: four replicas: %d %s, want %s", node.Name, out.Code, out.Stderr, want)
		}
	}
}

// caBundles sets the CA of both configurations.
func (g *gatekeeper) caBundles(t *testing.T, ca string) {
	t.Helper()
	for _, name := range []string{keeperValidating, keeperMutating} {
		g.kubectl(t, "patch", name, "--type=json", fmt.Sprintf(`-p=[{"op":"add","path":"/webhooks/0/clientConfig/caBundle","value":%q}]`, ca))
	}
}

// otherAuthority is a CA that has not signed Gatekeeper's certificate: the cluster's own.
func (g *gatekeeper) otherAuthority(t *testing.T) string {
	t.Helper()
	ca, err := os.ReadFile(g.c.CAFile)
	noError(t, err)
	return base64.StdEncoding.EncodeToString(ca)
}

// awaitCA waits until Gatekeeper has written the CA of its Secret into both configurations.
func (g *gatekeeper) awaitCA(t *testing.T) {
	t.Helper()
	want := g.kubectl(t, "-n", keepers, "get", "secret", "gatekeeper-webhook-server-cert", "-o", `jsonpath={.data.ca\.crt}`)
	cluster.Await(t, time.Minute, "the CA in the configurations", func() string {
		for _, name := range []string{keeperValidating, keeperMutating} {
			if got := g.kubectl(t, "get", name, "-o", "jsonpath={.webhooks[0].clientConfig.caBundle}"); got != want {
				return fmt.Sprintf("%s has %.40s..., want %.40s...", name, got, want)
			}
		}
		return ""
	})
}

// mendsCA: Gatekeeper sees that its configurations were given another CA.
func (g *gatekeeper) mendsCA(t *testing.T) {
	g.caBundles(t, g.otherAuthority(t))
	g.awaitCA(t)
}

// otherCA is mendsCA while Gatekeeper's role does not let it write its configurations.
func (g *gatekeeper) otherCA(t *testing.T) {
	t.Helper()
	var role struct {
		Rules []json.RawMessage
	}
	noError(t, json.Unmarshal([]byte(g.kubectl(t, "get", "clusterrole", "gatekeeper-manager-role", "-o", "json")), &role))
	g.rules = role.Rules
	// Its rules for single objects are those for the configurations.
	without := slices.DeleteFunc(slices.Clone(role.Rules), func(rule json.RawMessage) bool { return bytes.Contains(rule, []byte("resourceNames")) })
	if out := g.tryRules(t, without); out.Code != 0 || len(without) != len(g.rules)-2 {
		t.Fatalf("%d of %d rules: %s", len(without), len(g.rules), out.Stderr)
	}
	g.caBundles(t, g.otherAuthority(t))
}

// tryRules writes the rules of Gatekeeper's role.
func (g *gatekeeper) tryRules(t *testing.T, rules []json.RawMessage) cluster.Output {
	t.Helper()
	patch, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/rules", "value": rules}})
	noError(t, err)
	return g.node().TryKubectl(t, nil, "", "patch", "clusterrole", "gatekeeper-manager-role", "--type=json", "-p="+string(patch))
}

// rightCA gives Gatekeeper its role back. The role is judged like everything else, and
// nothing judges: so the configuration is suspended meanwhile.
func (g *gatekeeper) rightCA(t *testing.T) {
	t.Helper()
	name := strings.TrimPrefix(keeperValidating, "validatingwebhookconfiguration/")
	if out := g.tryRules(t, g.rules); out.Code == 0 || !strings.Contains(out.Stderr, "failed calling webhook") {
		t.Errorf("the role without Gatekeeper's judgement: %d %s", out.Code, out.Stderr)
	}
	g.c.Admin(t, "admission", "suspend", name)
	out := g.tryRules(t, g.rules)
	g.c.Admin(t, "admission", "resume", name)
	if out.Code != 0 {
		t.Fatalf("the role while its webhook is suspended: %s", out.Stderr)
	}
	// It looks at its configurations when they change.
	g.kubectl(t, "annotate", keeperValidating, "look=here")
	g.awaitCA(t)
}

// gone kills Gatekeeper and says so in its EndpointSlice.
func (g *gatekeeper) gone(t *testing.T) {
	t.Helper()
	g.kill(t)
	g.endpoint(t, g.at, false)
}

// answer is what a server says that has Gatekeeper's certificate and place: that the
// write is allowed, with one thing wrong.
type answer struct {
	UID     string
	Kind    string
	Version string
	Bytes   int // so many more
}

// lies kills Gatekeeper, and a server takes its place.
func (g *gatekeeper) lies(a answer) func(*testing.T) {
	return func(t *testing.T) {
		t.Helper()
		g.kill(t)
		listener, err := net.Listen("tcp", net.JoinHostPort(g.host, "0"))
		noError(t, err)
		g.liar = httptest.NewUnstartedServer(http.HandlerFunc(a.serve))
		noError(t, g.liar.Listener.Close())
		g.liar.Listener, g.liar.TLS = listener, &tls.Config{Certificates: []tls.Certificate{g.certificate(t)}}
		g.liar.StartTLS()
		t.Cleanup(g.liar.Close)
		g.endpoint(t, listener.Addr().(*net.TCPAddr).Port, true)
	}
}

// replaceLiar starts Gatekeeper in the place of the server of lies. The nodes keep the
// connections that they have: it ends.
func (g *gatekeeper) replaceLiar(t *testing.T) {
	t.Helper()
	g.liar.CloseClientConnections()
	g.liar.Close()
	g.start(t)
}

func (a answer) serve(w http.ResponseWriter, r *http.Request) {
	var review struct {
		APIVersion, Kind string
		Request          struct{ UID string }
	}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	uid := review.Request.UID
	for _, x := range []struct {
		field *string
		value string
	}{{&uid, a.UID}, {&review.Kind, a.Kind}, {&review.APIVersion, a.Version}} {
		if x.value != "" {
			*x.field = x.value
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"apiVersion":%q,"kind":%q,"response":{"uid":%q,"allowed":true,"warnings":["`, review.APIVersion, review.Kind, uid)
	_, _ = io.CopyN(w, endless{}, int64(a.Bytes))
	_, _ = io.WriteString(w, `"]}}`)
}

// endless is text without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// suspended: Gatekeeper is dead and its configuration suspended, so that namespaces can be
// made; then it is asked again. What it has done shows in the list.
func (g *gatekeeper) suspended(t *testing.T) {
	const name = "gatekeeper-validating-webhook-configuration"
	list := g.c.Admin(t, "admission", "list")
	for _, node := range g.c.Nodes() {
		row := regexp.MustCompile(`(?m)^validatingwebhookconfigurations/` + name + ` +validation.gatekeeper.sh +closed +1s +` + node.Name + ` +[1-9]\d* +[1-9]\d* +[1-9]\d* +[1-9]\d* `)
		if !row.MatchString(list) {
			t.Errorf("no row %s in\n%s", row, list)
		}
	}
	t.Logf("quorate admission list:\n%s", list)
	create := func(node *cluster.Node, namespace string) cluster.Output {
		return node.TryKubectl(t, nil, fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, namespace), "create", "-f", "-")
	}
	closed := func(namespace string) {
		t.Helper()
		for i, node := range g.c.Nodes() {
			if out := create(node, fmt.Sprintf("%s-%d", namespace, i)); out.Code == 0 || !strings.Contains(out.Stderr, "failed calling webhook") {
				t.Errorf("%s: %s: %d %s", node.Name, namespace, out.Code, out.Stderr)
			}
		}
	}
	g.kill(t)
	closed("dead")
	if out := g.c.Admin(t, "admission", "suspend", name, "--for", "5m"); !strings.Contains(out, "is suspended until") {
		t.Error(out)
	}
	for i, node := range g.c.Nodes() {
		out := create(node, fmt.Sprintf("suspended-%d", i))
		if out.Code != 0 || !strings.Contains(out.Stderr, "Warning: admission: validatingwebhookconfigurations/"+name+" is suspended until") {
			t.Errorf("%s: %d %s", node.Name, out.Code, out.Stderr)
		}
	}
	if list := g.c.Admin(t, "admission", "list"); !strings.Contains(list, name+" is suspended until") {
		t.Errorf("the list does not say that it is suspended:\n%s", list)
	}
	// The nodes enforce what Gatekeeper has made policies of.
	g.policyHolds(t)
	g.c.Admin(t, "admission", "resume", name)
	closed("resumed")
	g.start(t)
	g.awaitJudgement(t, "after-suspension")
}

// leaderChanges: the leader is killed and leadership moves, among writes.
func (g *gatekeeper) leaderChanges(t *testing.T) {
	s := g.storm(t, "leader")
	defer s.stop()
	for range 3 {
		leader := g.c.Leader(t)
		began := time.Now()
		g.c.Kill(t, leader)
		g.c.Leader(t, g.c.Others(leader)...)
		elected := time.Since(began)
		s.more(t, 10)
		t.Logf("%s killed: a leader after %v, 10 judged writes after %v", leader.Name, elected.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
		g.c.Restart(t, leader)
		s.more(t, 60)
	}
	for range 3 {
		began := time.Now()
		g.c.Admin(t, "member", "transfer-leader")
		s.more(t, 10)
		t.Logf("leadership moved: 10 judged writes after %v", time.Since(began).Round(time.Millisecond))
		s.more(t, 60)
	}
	s.end(t)
	// Both processes go on: a new constraint reaches them.
	g.quiet(t, "testdata/gatekeeper/late.yaml")
	g.enforced(t, "k8srequiredlabels", "secrets-need-a-reason")
	for _, node := range g.c.Nodes() {
		out := node.TryKubectl(t, nil, "", "create", "secret", "generic", "late")
		if want := `[secrets-need-a-reason] you must provide labels: {"reason"}`; out.Code == 0 || !strings.Contains(out.Stderr, want) {
			t.Errorf("%s: %d %s, want %s", node.Name, out.Code, out.Stderr, want)
		}
	}
}
