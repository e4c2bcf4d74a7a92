package quota_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/types/quota"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/internal/must"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	resourcehelper "k8s.io/component-helpers/resource"
)

// TestPodsAreCountedAsUpstream holds what Pods use against upstream's own sums, for Pods with
// everything that they depend on.
func TestPodsAreCountedAsUpstream(t *testing.T) {
	const seed = 7
	r := rand.New(rand.NewPCG(seed, 0))
	for n := range 3000 {
		p := randomPod(r)
		obj, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
		must.OK(t, err)
		got := quota.Pod(tree.Object(obj), time.Now())
		options := resourcehelper.PodResourcesOptions{UseStatusResources: true}
		want := quota.List{}
		for name, q := range resourcehelper.PodRequests(p, options) {
			want = append(want, quota.Item{Name: "requests." + string(name), Quantity: q})
		}
		for name, q := range resourcehelper.PodLimits(p, options) {
			if name == "cpu" || name == "memory" {
				want = append(want, quota.Item{Name: "limits." + string(name), Quantity: q})
			}
		}
		if len(got.List) != len(want)+1 {
			t.Fatalf("seed %d, Pod %d: it uses %v, want %v", seed, n, got.List, want)
		}
		for _, w := range want {
			if q := got.Get(w.Name); q.String() != w.Quantity.String() {
				t.Fatalf("seed %d, Pod %d: %s is %s, want %s; %+v", seed, n, w.Name, q.String(), w.Quantity.String(), obj)
			}
		}
	}
}

func randomPod(r *rand.Rand) *corev1.Pod {
	p := &corev1.Pod{}
	always := corev1.ContainerRestartPolicyAlways
	for i := range 1 + r.IntN(3) {
		c := corev1.Container{Name: string(rune('a' + i)), Resources: randomResources(r)}
		p.Spec.Containers = append(p.Spec.Containers, c)
		if r.IntN(2) == 0 {
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, randomStatus(r, c.Name))
		}
	}
	for i := range r.IntN(4) {
		c := corev1.Container{Name: string(rune('p' + i)), Resources: randomResources(r)}
		if r.IntN(2) == 0 {
			c.RestartPolicy = &always
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		if r.IntN(2) == 0 {
			p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, randomStatus(r, c.Name))
		}
	}
	if r.IntN(3) == 0 {
		p.Spec.Overhead = randomList(r)
	}
	if r.IntN(3) == 0 {
		whole := randomResources(r)
		p.Spec.Resources = &whole
	}
	if r.IntN(4) == 0 {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Reason: corev1.PodReasonInfeasible}}
		// Of two of a type the first one counts.
		if other := (corev1.PodCondition{Type: corev1.PodResizePending, Reason: corev1.PodReasonDeferred}); r.IntN(2) == 0 {
			p.Status.Conditions = slices.Insert(p.Status.Conditions, r.IntN(2), other)
		}
	}
	return p
}

func randomStatus(r *rand.Rand, name string) corev1.ContainerStatus {
	s := corev1.ContainerStatus{Name: name, AllocatedResources: randomList(r)}
	if r.IntN(3) > 0 {
		has := randomResources(r)
		s.Resources = &has
	}
	return s
}

func randomResources(r *rand.Rand) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: randomList(r), Limits: randomList(r)}
}

func randomList(r *rand.Rand) corev1.ResourceList {
	list := corev1.ResourceList{}
	for _, name := range []corev1.ResourceName{"cpu", "memory", "hugepages-2Mi", "example.com/gpu"} {
		if r.IntN(2) == 0 {
			list[name] = resource.MustParse([]string{"0", "100m", "1", "1500m", "2", "1Gi", "1073741824", "3k"}[r.IntN(8)])
		}
	}
	return list
}
