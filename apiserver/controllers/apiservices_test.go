package controllers

import (
	"fmt"
	"testing"

	"github.com/quorate/quorate/internal/must"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// TestAPIServices: each version of a group that is served here has an APIService, those of
// custom resources as long as they are served; what a user has written stays.
func TestAPIServices(t *testing.T) {
	e := newEnv(t, Config{Controllers: []Name{AutoregistrationController, APIExtensionsController}})
	mine := func(name, group, label string) *apiregistrationv1.APIService {
		s := &apiregistrationv1.APIService{Spec: apiregistrationv1.APIServiceSpec{Group: group, Version: "v1", GroupPriorityMinimum: 10, VersionPriority: 10}}
		s.Name = name
		if label != "" {
			s.Labels = map[string]string{automanaged: label}
		}
		return s
	}
	for _, s := range []*apiregistrationv1.APIService{
		mine("v1.apps", "apps", ""), mine("v1.batch", "batch", managedOnStart),
		mine("v1.old.example.com", "old.example.com", managedOnStart), mine("v1.other.example.com", "other.example.com", managedContinually),
		mine("v1.mine.example.com", "mine.example.com", ""),
	} {
		must.OK(t, e.client.Create(t.Context(), apiServicesGVR, "", s))
	}
	e.run()
	is := func(name, label string, group, version int32) {
		t.Helper()
		e.await(name, func() string {
			var s apiregistrationv1.APIService
			if err := e.client.Get(t.Context(), apiServicesGVR, "", name, &s); err != nil {
				return err.Error()
			}
			if s.Labels[automanaged] != label || s.Spec.GroupPriorityMinimum != group || s.Spec.VersionPriority != version {
				return fmt.Sprintf("%v %+v", s.Labels, s.Spec)
			}
			if len(s.Status.Conditions) != 1 || s.Status.Conditions[0].Reason != "Local" || s.Status.Conditions[0].Status != "True" {
				t.Fatalf("%s: %+v", name, s.Status)
			}
			return ""
		})
	}
	gone := func(name string) {
		t.Helper()
		e.await(name, func() string {
			var s apiregistrationv1.APIService
			if err := e.client.Get(t.Context(), apiServicesGVR, "", name, &s); !apierrors.IsNotFound(err) {
				return fmt.Sprintf("it is there: %v", err)
			}
			return ""
		})
	}
	is("v1.", managedOnStart, 18000, 1)
	is("v2.autoscaling", managedOnStart, 17500, 30)
	is("v1.batch", managedOnStart, 17400, 15)
	gone("v1.old.example.com")
	gone("v1.other.example.com")
	is("v1.apps", "", 10, 10)
	is("v1.mine.example.com", "", 10, 10)

	d := &apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Group: "x.example.com", Scope: apiextensionsv1.ClusterScoped, Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "things", Singular: "thing", Kind: "Thing", ListKind: "ThingList"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
			{Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}}},
			{Name: "v2", Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}}},
		},
	}}
	d.Name = "things.x.example.com"
	must.OK(t, e.client.Create(t.Context(), definitionsGVR, "", d))
	is("v1.x.example.com", managedContinually, 1000, 100)
	gone("v2.x.example.com")

	// What is deleted comes back if it is of a custom resource, and in the next term if it is not.
	for _, name := range []string{"v1.x.example.com", "v1."} {
		var s apiregistrationv1.APIService
		must.OK(t, e.client.Get(t.Context(), apiServicesGVR, "", name, &s))
		must.OK(t, e.client.Delete(t.Context(), apiServicesGVR, "", name, s.UID))
	}
	is("v1.x.example.com", managedContinually, 1000, 100)
	gone("v1.")

	var stored apiextensionsv1.CustomResourceDefinition
	must.OK(t, e.client.Get(t.Context(), definitionsGVR, "", d.Name, &stored))
	must.OK(t, e.client.Delete(t.Context(), definitionsGVR, "", d.Name, stored.UID))
	gone("v1.x.example.com")
	e.stop()
	e.run()
	is("v1.", managedOnStart, 18000, 1)
}

// TestAPIServicePriorities: every version that is built in has its place.
func TestAPIServicePriorities(t *testing.T) {
	e := newEnv(t, Config{})
	for _, res := range e.objects.Kinds().All() {
		if _, ok := apiServicePriorities[res.GroupVersion()]; !ok && res.Group != apiServicesGVR.Group {
			t.Errorf("%s has no priority", res.GroupVersion())
		}
	}
}
