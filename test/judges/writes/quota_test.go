package writes

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/types/quota"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/judges/random"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	upstream "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/quota/v1/evaluator/core"
	testingclock "k8s.io/utils/clock/testing"
)

// used are names of resources, classes and phases, which objects have in each other's places, too.
var used = []string{
	"", "a", "b", "cpu", "cpu", "memory", "memory", "storage", "storage", "ephemeral-storage", "hugepages-2Mi", "example.com/gpu", "kubernetes.io/x", "requests.cpu",
	"Failed", "Succeeded", "Running", "Always", "NodePort", "LoadBalancer", "ClusterIP", "ExactCount", "All", "Exists",
}

// evaluated are the kinds whose objects use more than their place.
func evaluated(now time.Time) map[schema.GroupVersionKind]upstream.Evaluator {
	return map[schema.GroupVersionKind]upstream.Evaluator{
		{Version: "v1", Kind: "Pod"}:                                     core.NewPodEvaluator(nil, testingclock.NewFakeClock(now)),
		{Version: "v1", Kind: "Service"}:                                 core.NewServiceEvaluator(nil),
		{Version: "v1", Kind: "PersistentVolumeClaim"}:                   core.NewPersistentVolumeClaimEvaluator(nil),
		{Group: "resource.k8s.io", Version: "v1", Kind: "ResourceClaim"}: core.NewResourceClaimEvaluator(nil, nil, nil, nil),
	}
}

// scopes are all that a quota can ask, and more.
func scopes() (all []corev1.ScopedResourceSelectorRequirement) {
	for _, name := range []corev1.ResourceQuotaScope{
		corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating, corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort,
		corev1.ResourceQuotaScopePriorityClass, corev1.ResourceQuotaScopeCrossNamespacePodAffinity, corev1.ResourceQuotaScopeVolumeAttributesClass,
	} {
		all = append(all, corev1.ScopedResourceSelectorRequirement{ScopeName: name, Operator: corev1.ScopeSelectorOpExists})
		if name != corev1.ResourceQuotaScopePriorityClass && name != corev1.ResourceQuotaScopeVolumeAttributesClass {
			continue // the others are not valid with another operator
		}
		all = append(all,
			corev1.ScopedResourceSelectorRequirement{ScopeName: name, Operator: corev1.ScopeSelectorOpDoesNotExist},
			corev1.ScopedResourceSelectorRequirement{ScopeName: name, Operator: corev1.ScopeSelectorOpIn, Values: []string{"a", "cpu"}},
			corev1.ScopedResourceSelectorRequirement{ScopeName: name, Operator: corev1.ScopeSelectorOpNotIn, Values: []string{"a", "cpu"}},
		)
	}
	return all
}

// TestQuota: objects use what upstream's evaluators say, and are in the same scopes.
func TestQuota(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	tried := 0
	for gvk, evaluator := range evaluated(now) {
		gr := evaluator.GroupResource()
		found := random.Differences{}
		for n := range *count * 17 {
			obj, err := legacyscheme.Scheme.New(gvk)
			must.OK(t, err)
			seed := *first + int64(n)
			filler := random.Filler{Words: used, Metadata: metadata}
			if seed%2 == 0 {
				filler.Absent = 0.3
			}
			filler.Fill(seed, obj)
			m, err := meta.Accessor(obj)
			must.OK(t, err)
			switch seed % 5 {
			case 0:
				m.SetDeletionTimestamp(&metav1.Time{Time: now.Add(time.Duration(seed%3-1) * time.Minute)})
			case 1:
				m.SetAnnotations(map[string]string{corev1.BetaStorageClassAnnotation: used[seed%7]})
			}
			obj.GetObjectKind().SetGroupVersionKind(gvk)
			internal, err := random.Read(t, random.Tree(t, obj), gvk)
			if err != nil {
				continue
			}
			kept, err := random.Keep(internal, gvk)
			must.OK(t, err)
			theirs, err := evaluator.Usage(kept)
			must.OK(t, err)
			ours, _ := quota.Of(gr, random.Tree(t, kept), now)
			tried++
			compareUsage(found, gr, theirs, ours)
			compareScopes(found, evaluator, kept, ours)
		}
		for _, at := range slices.Sorted(maps.Keys(found)) {
			t.Errorf("%s, %s: %d times: %s", gr, at, found[at].Count, found[at].Example)
		}
	}
	t.Logf("%d objects", tried)
}

func compareUsage(found random.Differences, gr schema.GroupResource, theirs corev1.ResourceList, ours quota.Usage) {
	for name, q := range theirs {
		r, ok := quota.ResourceOf(string(name))
		if gr == quota.ResourceClaims && strings.HasPrefix(string(name), corev1.ResourceImplicitExtendedClaimsPerClass) {
			continue // docs/differences.md
		}
		if !ok || r.Of != gr {
			if q.Sign() != 0 {
				found.Add(string(name), q.String(), "not bounded")
			}
			continue
		}
		if r.Amount == "" {
			continue // its place, which the state machine counts
		}
		if got, want := quota.Amount(r.Amount, ours.Get(r.Amount)), quota.Amount(r.Amount, q); got != want {
			found.Add(string(name), want, got)
		}
	}
	for _, name := range quota.NamesOf(gr, ours.List) {
		if r, _ := quota.ResourceOf(name); r.Amount == "" {
			continue
		}
		if _, ok := theirs[corev1.ResourceName(name)]; !ok {
			q := ours.Get(name)
			found.Add(name, "absent", q.String())
		}
	}
}

func compareScopes(found random.Differences, evaluator upstream.Evaluator, obj runtime.Object, ours quota.Usage) {
	for _, s := range scopes() {
		matching, err := evaluator.MatchingScopes(obj, []corev1.ScopedResourceSelectorRequirement{s})
		if got := ours.InScope(s); err == nil && got != (len(matching) > 0) {
			found.Add(fmt.Sprint("scope ", s.ScopeName, " ", s.Operator), len(matching) > 0, got)
		}
	}
}
