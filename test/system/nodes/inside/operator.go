package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// widgets is the resource of the operator: v1 has spec.size, v2 has spec.length in its place.
var widgets = schema.GroupVersionResource{Group: "site.test", Version: "v1", Resource: "widgets"}

// operator serves the webhooks of widgets at port 8443, with the certificate in /certs, and makes a
// ConfigMap of each widget in its namespace, as a controller does.
func operator(ctx context.Context) error {
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	namespace, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /mutate", answer(mutate))
	mux.HandleFunc("POST /convert", answer(convert))
	server := &http.Server{Addr: ":8443", Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.ListenAndServeTLS("/certs/tls.crt", "/certs/tls.key") }()
	defer server.Close()
	c := controller{dynamic: dynamic.NewForConfigOrDie(config), core: kubernetes.NewForConfigOrDie(config), namespace: string(namespace)}
	controlled := make(chan error, 1)
	go func() { controlled <- c.run(ctx) }()
	select {
	case err := <-served:
		return err
	case err := <-controlled:
		return err
	}
}

// answer is a handler of reviews, which are answered as they came with a response.
func answer(f func(body []byte) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, 4<<20))
		if err == nil {
			var review any
			if review, err = f(body); err == nil {
				w.Header().Set("Content-Type", "application/json")
				err = json.NewEncoder(w).Encode(review)
			}
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	}
}

// mutate labels each widget with the user who has made it, and refuses those of no size.
func mutate(body []byte) (any, error) {
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &review); err != nil || review.Request == nil {
		return nil, fmt.Errorf("not a review: %w", err)
	}
	var object unstructured.Unstructured
	if err := object.UnmarshalJSON(review.Request.Object.Raw); err != nil {
		return nil, err
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	if size, _, _ := unstructured.NestedInt64(object.Object, "spec", "size"); size <= 0 {
		review.Response.Allowed = false
		review.Response.Result = &metav1.Status{Message: "a widget has a size"}
	} else if len(object.GetLabels()) == 0 {
		patch := admissionv1.PatchTypeJSONPatch
		review.Response.PatchType, review.Response.Patch = &patch, []byte(`[{"op":"add","path":"/metadata/labels","value":{"mutated":"yes"}}]`)
	}
	review.Request = nil
	return review, nil
}

// review is a ConversionReview.
type review struct {
	metav1.TypeMeta `json:",inline"`
	Request         *struct {
		UID               string                      `json:"uid"`
		DesiredAPIVersion string                      `json:"desiredAPIVersion"`
		Objects           []unstructured.Unstructured `json:"objects"`
	} `json:"request,omitempty"`
	Response *struct {
		UID       string                      `json:"uid"`
		Converted []unstructured.Unstructured `json:"convertedObjects"`
		Result    metav1.Status               `json:"result"`
	} `json:"response,omitempty"`
}

func convert(body []byte) (any, error) {
	var r review
	if err := json.Unmarshal(body, &r); err != nil || r.Request == nil {
		return nil, fmt.Errorf("not a review: %w", err)
	}
	names := map[string]string{"site.test/v1": "size", "site.test/v2": "length"}
	for _, o := range r.Request.Objects {
		from, to := names[o.GetAPIVersion()], names[r.Request.DesiredAPIVersion]
		o.SetAPIVersion(r.Request.DesiredAPIVersion)
		if spec, ok := o.Object["spec"].(map[string]any); ok && from != to {
			spec[to] = spec[from]
			delete(spec, from)
		}
	}
	out := review{TypeMeta: r.TypeMeta}
	out.Response = &struct {
		UID       string                      `json:"uid"`
		Converted []unstructured.Unstructured `json:"convertedObjects"`
		Result    metav1.Status               `json:"result"`
	}{r.Request.UID, r.Request.Objects, metav1.Status{Status: metav1.StatusSuccess}}
	return out, nil
}

type controller struct {
	dynamic   dynamic.Interface
	core      kubernetes.Interface
	namespace string
}

func (c controller) run(ctx context.Context) error {
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(c.dynamic, 0, c.namespace, nil)
	informer := factory.ForResource(widgets).Informer()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	defer queue.ShutDown()
	add := func(obj any) {
		if key, err := cache.MetaNamespaceKeyFunc(obj); err == nil {
			queue.Add(key)
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, obj any) { add(obj) }}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	go func() {
		<-ctx.Done()
		queue.ShutDown()
	}()
	for {
		key, end := queue.Get()
		if end {
			return nil
		}
		obj, exists, err := informer.GetStore().GetByKey(key)
		if err == nil && exists {
			err = c.reconcile(ctx, obj.(*unstructured.Unstructured).DeepCopy())
		}
		if err != nil {
			fmt.Println("again:", key, err)
			queue.AddRateLimited(key)
		} else {
			queue.Forget(key)
		}
		queue.Done(key)
	}
}

// reconcile has a ConfigMap of the widget's name with its size, and says so in its status.
func (c controller) reconcile(ctx context.Context, w *unstructured.Unstructured) error {
	size, _, err := unstructured.NestedInt64(w.Object, "spec", "size")
	if err != nil {
		return err
	}
	owner := metav1.OwnerReference{APIVersion: "site.test/v1", Kind: "Widget", Name: w.GetName(), UID: w.GetUID()}
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: w.GetName(), OwnerReferences: []metav1.OwnerReference{owner}},
		Data:       map[string]string{"size": fmt.Sprint(size)},
	}
	if _, err := c.core.CoreV1().ConfigMaps(c.namespace).Create(ctx, cm, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	if state, _, _ := unstructured.NestedString(w.Object, "status", "state"); state == "made" {
		return nil
	}
	if err := unstructured.SetNestedField(w.Object, "made", "status", "state"); err != nil {
		return err
	}
	_, err = c.dynamic.Resource(widgets).Namespace(c.namespace).UpdateStatus(ctx, w, metav1.UpdateOptions{})
	return err
}
