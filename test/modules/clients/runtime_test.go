package clients

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/quorate/quorate/test/harness/cluster"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// runtimeClient makes the calls of controller-runtime's client.
func runtimeClient(t *testing.T, s *surroundings) {
	ctx := t.Context()
	plain, err := client.New(s.config, client.Options{})
	noError(t, err)
	c := client.NewNamespacedClient(plain, s.ns)

	d := deployment("d")
	noError(t, c.Create(ctx, d))
	key := client.ObjectKeyFromObject(d)
	before := d.DeepCopy()
	d.Labels["merge"] = "y"
	noError(t, c.Patch(ctx, d, client.MergeFrom(before)))
	before = d.DeepCopy()
	d.Spec.Template.Spec.Containers[0].Image = "other"
	noError(t, c.Patch(ctx, d, client.StrategicMergeFrom(before, client.MergeFromWithOptimisticLock{})))
	if err := c.Patch(ctx, before, client.StrategicMergeFrom(before.DeepCopy(), client.MergeFromWithOptimisticLock{})); !apierrors.IsConflict(err) {
		t.Errorf("a patch with an old resourceVersion: %v", err)
	}
	d.Status.Replicas = 2
	noError(t, c.Status().Update(ctx, d))
	before = d.DeepCopy()
	d.Status.ReadyReplicas = 1
	noError(t, c.Status().Patch(ctx, d, client.MergeFrom(before)))
	scale := &autoscalingv1.Scale{}
	noError(t, c.SubResource("scale").Get(ctx, d, scale))
	scale.Spec.Replicas = 9
	noError(t, c.SubResource("scale").Update(ctx, d, client.WithSubResourceBody(scale)))
	noError(t, c.Get(ctx, key, d))
	if *d.Spec.Replicas != 9 || d.Status.ReadyReplicas != 1 || d.Spec.Template.Spec.Containers[0].Image != "other" {
		t.Errorf("got %+v", d)
	}
	for _, want := range []controllerutil.OperationResult{controllerutil.OperationResultUpdated, controllerutil.OperationResultNone} {
		did, err := controllerutil.CreateOrUpdate(ctx, c, d, func() error { d.Labels["merge"] = "z"; return nil })
		if err != nil || did != want {
			t.Errorf("CreateOrUpdate: %s (%v), want %s", did, err, want)
		}
	}

	applied := corev1ac.ConfigMap("applied", s.ns).WithData(map[string]string{"k": "1"})
	noError(t, c.Apply(ctx, applied, client.FieldOwner("owner"), client.ForceOwnership))

	// Metadata and objects of any kind.
	partial := &metav1.PartialObjectMetadata{}
	partial.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
	noError(t, c.Get(ctx, key, partial))
	if partial.Labels["merge"] != "z" {
		t.Errorf("metadata %+v", partial)
	}
	u := &unstructured.UnstructuredList{}
	u.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("DeploymentList"))
	noError(t, c.List(ctx, u, client.MatchingLabels{"merge": "z"}))
	if len(u.Items) != 1 {
		t.Errorf("%d objects of any kind", len(u.Items))
	}

	// What is not stored, and what is refused.
	noError(t, client.NewDryRunClient(c).Create(ctx, deployment("dry")))
	if err := c.Get(ctx, types.NamespacedName{Name: "dry"}, &appsv1.Deployment{}); !apierrors.IsNotFound(err) {
		t.Errorf("after a dry run: %v", err)
	}
	wrong := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "w"}, "dta": map[string]any{}}}
	if err := client.WithFieldValidation(c, metav1.FieldValidationStrict).Create(ctx, wrong); !apierrors.IsBadRequest(err) {
		t.Errorf("an unknown field: %v", err)
	}

	// Many.
	for i := range 5 {
		noError(t, c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "many-", Labels: map[string]string{"i": fmt.Sprint(i % 2)}}}))
	}
	var list corev1.ConfigMapList
	pages := 0
	for token := ""; pages == 0 || token != ""; pages++ {
		noError(t, c.List(ctx, &list, client.Limit(2), client.Continue(token), client.HasLabels{"i"}))
		token = list.Continue
	}
	if pages != 3 {
		t.Errorf("%d pages, want 3", pages)
	}
	noError(t, c.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.MatchingLabels{"i": "0"}))
	noError(t, c.List(ctx, &list, client.HasLabels{"i"}))
	if len(list.Items) != 2 {
		t.Errorf("%d objects are left, want 2", len(list.Items))
	}
	noError(t, c.Delete(ctx, d, client.PropagationPolicy(metav1.DeletePropagationBackground), client.Preconditions{UID: &d.UID}))
	if err := c.Delete(ctx, d); !apierrors.IsNotFound(err) {
		t.Errorf("deleted twice: %v", err)
	}
}

// runtimeCache reads through controller-runtime's cache: by selector, by index, as
// metadata, and without a type.
func runtimeCache(t *testing.T, s *surroundings) {
	ctx, cancel := context.WithCancel(context.Background())
	c, err := cache.New(s.config, cache.Options{
		DefaultNamespaces: map[string]cache.Config{s.ns: {}},
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Secret{}: {Label: labels.SelectorFromSet(labels.Set{"kept": "yes"})},
			&corev1.Pod{}:    {Field: fields.OneTermEqualSelector("spec.nodeName", "n1")},
		},
	})
	noError(t, err)
	noError(t, c.IndexField(ctx, &corev1.ConfigMap{}, "data.k", func(o client.Object) []string { return []string{o.(*corev1.ConfigMap).Data["k"]} }))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := c.Start(ctx); err != nil {
			t.Error(err)
		}
	})
	defer wg.Wait()
	defer cancel()

	for i := range 6 {
		name, l := fmt.Sprintf("o%d", i), map[string]string{"kept": map[bool]string{true: "yes", false: "no"}[i < 2]}
		_, err := s.typed.CoreV1().ConfigMaps(s.ns).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"k": fmt.Sprint(i % 2)}}, metav1.CreateOptions{})
		noError(t, err)
		_, err = s.typed.CoreV1().Secrets(s.ns).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: l}}, metav1.CreateOptions{})
		noError(t, err)
		_, err = s.typed.CoreV1().Pods(s.ns).Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PodSpec{NodeName: fmt.Sprintf("n%d", i), Containers: []corev1.Container{{Name: "c", Image: "i"}}}}, metav1.CreateOptions{})
		noError(t, err)
	}
	partial := &metav1.PartialObjectMetadataList{}
	partial.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ServiceAccountList"))
	_, err = s.typed.CoreV1().ServiceAccounts(s.ns).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot", Labels: map[string]string{"a": "b"}}}, metav1.CreateOptions{})
	noError(t, err)
	untyped := &unstructured.UnstructuredList{}
	untyped.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	for _, x := range []struct {
		what    string
		list    client.ObjectList
		options []client.ListOption
		want    int
	}{
		{"the index", &corev1.ConfigMapList{}, []client.ListOption{client.MatchingFields{"data.k": "1"}}, 3},
		{"the label selector of the cache", &corev1.SecretList{}, nil, 2},
		{"the field selector of the cache", &corev1.PodList{}, nil, 1},
		{"metadata", partial, []client.ListOption{client.MatchingLabels{"a": "b"}}, 1},
		{"objects of any kind", untyped, nil, 2},
	} {
		cluster.Await(t, within, x.what, func() string {
			noError(t, c.List(ctx, x.list, x.options...))
			items, err := meta.ExtractList(x.list)
			noError(t, err)
			if len(items) != x.want {
				return fmt.Sprintf("%d objects, want %d", len(items), x.want)
			}
			return ""
		})
	}
}
