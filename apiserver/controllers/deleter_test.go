package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/internal/must"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// judge is a plugin that answers for deletes as a test says.
type judge struct {
	mu     sync.Mutex
	says   func(ctx context.Context, a *admission.Attributes) error
	asked  []string
	panics atomic.Int64
}

func (j *judge) Handles(a *admission.Attributes) bool { return a.Operation == admission.Delete }

func (j *judge) Validate(ctx context.Context, a *admission.Attributes) error {
	j.mu.Lock()
	j.asked = append(j.asked, fmt.Sprint(a.User.Name, " ", a.Resource.Resource, " ", a.Namespace, "/", a.Name))
	says := j.says
	j.mu.Unlock()
	return says(ctx, a)
}

func (j *judge) set(says func(ctx context.Context, a *admission.Attributes) error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.says, j.asked = says, nil
}

func admitAll(context.Context, *admission.Attributes) error { return nil }

func (e *env) namespace(name string) {
	e.t.Helper()
	must.OK(e.t, e.client.Create(e.t.Context(), namespacesGVR, "", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
}

func (e *env) configMap(namespace, name string, owners ...metav1.OwnerReference) {
	e.t.Helper()
	must.OK(e.t, e.client.Create(e.t.Context(), mapsGVR, namespace, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners}}))
}

func (e *env) secret(namespace, name string, owners ...metav1.OwnerReference) {
	e.t.Helper()
	must.OK(e.t, e.client.Create(e.t.Context(), secretsGVR, namespace, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners}}))
}

// end deletes a namespace as a client does.
func (e *env) end(name string) {
	e.t.Helper()
	var ns corev1.Namespace
	err := e.client.Get(e.t.Context(), namespacesGVR, "", name, &ns)
	if err == nil {
		err = e.client.Delete(e.t.Context(), namespacesGVR, "", name, ns.UID)
	}
	must.OK(e.t, err)
}

func (e *env) contentFailure(namespace string) string {
	e.t.Helper()
	var ns corev1.Namespace
	must.OK(e.t, e.client.Get(e.t.Context(), namespacesGVR, "", namespace, &ns))
	for _, c := range ns.Status.Conditions {
		if c.Type == corev1.NamespaceDeletionContentFailure && c.Status == corev1.ConditionTrue {
			return c.Message
		}
	}
	return ""
}

func (e *env) gone(table string, keys ...string) func() string {
	return func() string {
		for _, has := range e.keys(table) {
			if slices.Contains(keys, has) {
				return has + " is there"
			}
		}
		return ""
	}
}

const (
	configMaps = "configmaps"
	secrets    = "secrets"
)

var deleters = Config{Controllers: []Name{NamespaceController, GarbageController}}

// absent is a reference to an owner that is gone.
var absent = metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "gone", UID: types.UID("gone")}

// TestRulesHoldAnEnd: what a rule protects stays, and holds its namespace; the rest goes.
func TestRulesHoldAnEnd(t *testing.T) {
	t.Parallel()
	j := &judge{}
	e := newJudgedEnv(t, deleters, j)
	protected := func(_ context.Context, a *admission.Attributes) error {
		if strings.HasPrefix(a.Name, "kept") {
			return apierrors.NewForbidden(a.Resource.GroupResource(), a.Name, errors.New("it is protected"))
		}
		return nil
	}
	j.set(protected)
	e.run()
	e.namespace("n")
	for i := range 3 {
		e.configMap("n", fmt.Sprint("a", i))
		e.configMap("n", fmt.Sprint("kept", i))
		e.configMap("n", fmt.Sprint("z", i))
	}
	e.secret("n", "s")
	e.configMap("default", "kept", absent)
	e.configMap("default", "garbage", absent)
	e.end("n")
	e.await("what is not protected is gone", e.gone(configMaps, "n/a0", "n/a1", "n/a2", "n/z0", "n/z1", "n/z2", "default/garbage"))
	e.await("other kinds are gone", e.gone(secrets, "n/s"))
	e.await("the condition says why", func() string {
		if got := e.contentFailure("n"); !strings.Contains(got, "delete configmaps: ") || !strings.Contains(got, "it is protected") {
			return fmt.Sprintf("%q", got)
		}
		return ""
	})
	if got := e.keys(configMaps); !slices.Equal(got, []string{"default/kept", "n/kept0", "n/kept1", "n/kept2"}) {
		t.Errorf("left: %v", got)
	}
	j.mu.Lock()
	for _, want := range []string{
		"system:serviceaccount:kube-system:namespace-controller configmaps n/kept1",
		"system:serviceaccount:kube-system:generic-garbage-collector configmaps default/kept",
	} {
		if !slices.Contains(j.asked, want) {
			t.Errorf("the plugin was not asked: %s", want)
		}
	}
	j.mu.Unlock()
	j.set(admitAll)
	e.awaitFor(time.Minute, "the namespace is gone", e.gone("namespaces", "n"))
	e.awaitFor(time.Minute, "the garbage is gone", e.gone(configMaps, "default/kept"))
}

// TestManyProtected: however many objects a rule protects, those behind them go, and attempts become rarer.
func TestManyProtected(t *testing.T) {
	t.Parallel()
	j := &judge{}
	e := newJudgedEnv(t, deleters, j)
	j.set(func(_ context.Context, a *admission.Attributes) error {
		if strings.HasPrefix(a.Name, "kept") {
			return apierrors.NewConflict(a.Resource.GroupResource(), a.Name, errors.New("it is protected")) // also with this code
		}
		return nil
	})
	e.run()
	e.namespace("n")
	const protected = 2*mostRefused + 20
	for i := range protected {
		e.configMap("n", fmt.Sprintf("kept%03d", i))
	}
	e.configMap("n", "z")
	e.end("n")
	e.await("what is behind them is gone", e.gone(configMaps, "n/z"))
	if got := len(e.keys(configMaps)); got != protected {
		t.Errorf("%d are left, %d are protected", got, protected)
	}

	e.namespace("few")
	for i := range 8 {
		e.configMap("few", fmt.Sprint("kept", i))
	}
	began := time.Now()
	e.end("few")
	const attempts = 5 // with pauses of 0.1, 0.2, 0.4 and 0.8 s
	e.await("it is tried again", func() string {
		j.mu.Lock()
		defer j.mu.Unlock()
		n := 0
		for _, about := range j.asked {
			if strings.HasSuffix(about, " few/kept0") {
				n++
			}
		}
		if n < attempts {
			return fmt.Sprint(n, " times")
		}
		return ""
	})
	//wall: a pause may be longer, but not shorter
	if took := time.Since(began); took < 1300*time.Millisecond {
		t.Errorf("%d attempts in %s", attempts, took)
	}
}

// TestDeadRuleDelaysItsOwn: a plugin that does not answer keeps nothing waiting that it is not asked about,
// however much it is asked about.
func TestDeadRuleDelaysItsOwn(t *testing.T) {
	t.Parallel()
	j := &judge{}
	e := newJudgedEnv(t, deleters, j)
	hanging := make(chan struct{})
	j.set(func(ctx context.Context, a *admission.Attributes) error {
		if a.Resource.Resource != "configmaps" || !strings.HasPrefix(a.Namespace, "dead") {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-hanging:
			return nil
		}
	})
	// As many as occupy all workers, and more.
	const namespaces, garbage = 2 * namespaceWorkers, 3 * garbageWorkers
	var dead, waste []string
	e.namespace("dead")
	for i := range namespaces {
		dead = append(dead, fmt.Sprint("dead", i))
		e.namespace(dead[i])
		e.configMap(dead[i], "c")
	}
	for i := range garbage {
		waste = append(waste, fmt.Sprint("dead/c", i))
		e.configMap("dead", fmt.Sprint("c", i), absent)
	}
	for i := range 20 {
		e.namespace(fmt.Sprint("alive", i))
		e.configMap(fmt.Sprint("alive", i), "c")
	}
	e.run()
	for _, name := range dead {
		e.end(name)
	}
	// The slow workers have them.
	e.await("they are asked about a second time", func() string {
		j.mu.Lock()
		defer j.mu.Unlock()
		for _, name := range dead {
			about := func(s string) bool { return strings.HasSuffix(s, name+"/c") }
			if first := slices.IndexFunc(j.asked, about); first < 0 || !slices.ContainsFunc(j.asked[first+1:], about) {
				return name + " is not"
			}
		}
		return ""
	})
	var alive []string
	for i := range 20 {
		alive = append(alive, fmt.Sprint("alive", i))
		e.end(alive[i])
		e.secret("default", fmt.Sprint("garbage", i), absent)
	}
	began := time.Now()
	e.await("other namespaces are gone", e.gone("namespaces", alive...))
	e.await("other garbage is gone", func() string {
		if got := e.keys(secrets); len(got) > 0 {
			return fmt.Sprint(got)
		}
		return ""
	})
	t.Logf("others were gone after %s", time.Since(began))
	if got := e.gone("namespaces", dead[0])(); got == "" {
		t.Error("a namespace is gone that is held")
	}
	close(hanging)
	e.awaitFor(time.Minute, "the namespaces are gone", e.gone("namespaces", dead...))
	e.awaitFor(time.Minute, "the garbage is gone", e.gone(configMaps, waste...))
}

// TestOutdatedRulesDeleteNothing: a rule that has come since a delete was decided decides on it again.
func TestOutdatedRulesDeleteNothing(t *testing.T) {
	t.Parallel()
	var (
		e     *env
		j     = &judge{}
		once  sync.Once
		asked int
	)
	e = newJudgedEnv(t, Config{}, j)
	j.set(func(context.Context, *admission.Attributes) error {
		if asked++; asked > 1 {
			return errors.New("refused by the new rule")
		}
		once.Do(func() {
			rule := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "new"}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
				MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Delete},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
				}}}},
				Validations: []admissionv1.Validation{{Expression: "false"}},
			}}
			if err := e.client.Create(t.Context(), policiesGVR, "", rule); err != nil {
				t.Error(err)
			}
		})
		return nil
	})
	e.configMap("default", "c")
	op, err := e.objects.SystemAt(t.Context(), configMaps, "default/c", "delete")
	must.OK(t, err)
	if _, err := op.DeleteAdmitted(asGarbageCollector, &metav1.DeleteOptions{}, 0); err == nil || !strings.Contains(err.Error(), "refused by the new rule") {
		t.Errorf("it ends with %v", err)
	}
	if got := e.keys(configMaps); !slices.Contains(got, "default/c") {
		t.Error("it is gone")
	}
}

// TestPanicsOfPluginsAreContained: a plugin that panics must not end the process, and then that of the next leader.
func TestPanicsOfPluginsAreContained(t *testing.T) {
	t.Parallel()
	j := &judge{}
	e := newJudgedEnv(t, deleters, j)
	j.set(func(_ context.Context, a *admission.Attributes) error {
		if a.Resource.Resource == "configmaps" {
			panic("a bug of a plugin")
		}
		return nil
	})
	e.run()
	e.namespace("n")
	e.configMap("n", "c")
	e.secret("n", "s")
	e.configMap("default", "garbage", absent)
	e.end("n")
	e.await("the plugin has panicked", func() string {
		if n := j.panics.Load(); n < 4 {
			return fmt.Sprint(n, " times")
		}
		return ""
	})
	e.await("other kinds are gone", e.gone(secrets, "n/s"))
	e.await("the condition says so", func() string {
		if got := e.contentFailure("n"); !strings.Contains(got, "delete configmaps n/c: panic") {
			return fmt.Sprintf("%q", got)
		}
		return ""
	})
	j.set(admitAll)
	e.awaitFor(time.Minute, "the namespace is gone", e.gone("namespaces", "n"))
	e.awaitFor(time.Minute, "the garbage is gone", e.gone(configMaps, "default/garbage"))
}
