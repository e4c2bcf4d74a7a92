package clients

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/quorate/quorate/test/harness/cluster"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery/cached/disk"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
)

// k9sCalls are what k9s sends: it asks what it may do, keeps discovery on disk,
// follows resources by dynamic informers that resync, draws tables of the server,
// and has a handful of actions.
func k9sCalls(t *testing.T, s *surroundings) {
	ctx := t.Context()
	cached, err := disk.NewCachedDiscoveryClientForConfig(s.config, t.TempDir(), t.TempDir(), time.Minute)
	noError(t, err)
	for range 2 { // from the server, and from the disk
		lists, err := cached.ServerPreferredResources()
		noError(t, err)
		if len(lists) < 15 {
			t.Errorf("%d lists of resources", len(lists))
		}
	}
	_, err = s.typed.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.ns}}, metav1.CreateOptions{})
	noError(t, err)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"app": "p"}},
		Spec: corev1.PodSpec{NodeName: s.ns, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	_, err = s.typed.CoreV1().Pods(s.ns).Create(ctx, pod, metav1.CreateOptions{})
	noError(t, err)

	// Tables, by a REST client without a scheme of the kinds.
	var table metav1.Table
	noError(t, tableClient(t, s.config).Get().SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io, application/json").
		Namespace(s.ns).Resource("pods").VersionedParams(&metav1.ListOptions{LabelSelector: "app=p"}, metav1.ParameterCodec).Do(ctx).Into(&table))
	if len(table.Rows) != 1 || table.Rows[0].Cells[0] != "p" || len(table.ColumnDefinitions) < 9 {
		t.Errorf("the table is %+v", table)
	}
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(dynamic.NewForConfigOrDie(s.config), 10*time.Minute, s.ns, nil)
	pods := factory.ForResource(schema.GroupVersionResource{Version: "v1", Resource: "pods"})
	pods.Informer()
	factory.Start(ctx.Done())
	cluster.Await(t, within, "the informer lists a pod", func() string {
		if l, err := pods.Lister().ByNamespace(s.ns).List(labels.Everything()); err != nil || len(l) != 1 {
			return fmt.Sprint(len(l), err)
		}
		return ""
	})

	// Actions: cordon, set an image, restart, scale, delete, kill.
	_, err = s.typed.CoreV1().Nodes().Patch(ctx, s.ns, types.StrategicMergePatchType, []byte(`{"spec":{"unschedulable":true}}`), metav1.PatchOptions{})
	noError(t, err)
	d := s.typed.AppsV1().Deployments(s.ns)
	_, err = d.Create(ctx, deployment("d"), metav1.CreateOptions{})
	noError(t, err)
	_, err = d.Patch(ctx, "d", types.StrategicMergePatchType, []byte(`{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"now"}},"spec":{"containers":[{"name":"c","image":"new"}],"$setElementOrder/containers":[{"name":"c"}]}}}}`), metav1.PatchOptions{})
	noError(t, err)
	scale, err := d.GetScale(ctx, "d", metav1.GetOptions{})
	noError(t, err)
	scale.Spec.Replicas = 7
	_, err = d.UpdateScale(ctx, "d", scale, metav1.UpdateOptions{})
	noError(t, err)
	got, err := d.Get(ctx, "d", metav1.GetOptions{})
	noError(t, err)
	if *got.Spec.Replicas != 7 || got.Spec.Template.Spec.Containers[0].Image != "new" {
		t.Errorf("got %+v", got.Spec)
	}
	background, none := metav1.DeletePropagationBackground, int64(0)
	noError(t, dynamic.NewForConfigOrDie(s.config).Resource(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}).
		Namespace(s.ns).Delete(ctx, "d", metav1.DeleteOptions{PropagationPolicy: &background, GracePeriodSeconds: &none}))
	noError(t, s.typed.CoreV1().Pods(s.ns).Delete(ctx, "p", metav1.DeleteOptions{GracePeriodSeconds: &none}))
	noError(t, s.typed.CoreV1().Nodes().Delete(ctx, s.ns, metav1.DeleteOptions{}))

	// What may be done.
	for _, verb := range []string{"get", "list", "watch", "delete"} {
		review, err := s.typed.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: s.ns, Verb: verb, Resource: "pods", Version: "v1"}}}, metav1.CreateOptions{})
		if err != nil || !review.Status.Allowed {
			t.Errorf("may it %s pods? %v %+v", verb, err, review.Status)
		}
	}
	rules, err := s.typed.AuthorizationV1().SelfSubjectRulesReviews().Create(ctx, &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: s.ns}}, metav1.CreateOptions{})
	if err != nil || !slices.ContainsFunc(rules.Status.ResourceRules, func(r authorizationv1.ResourceRule) bool { return slices.Contains(r.Verbs, "*") }) {
		t.Errorf("the rules for an administrator: %v %+v", err, rules.Status)
	}
}

// tableClient reads Tables of core resources.
func tableClient(t *testing.T, config *rest.Config) *rest.RESTClient {
	t.Helper()
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	noError(t, metav1.AddMetaToScheme(scheme))
	config = rest.CopyConfig(config)
	config.GroupVersion, config.APIPath = &schema.GroupVersion{Version: "v1"}, "/api"
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	noError(t, err)
	return client
}
