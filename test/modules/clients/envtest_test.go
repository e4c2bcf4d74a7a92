package clients

import (
	"testing"

	"github.com/quorate/quorate/quoratetest"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// TestEnvtest: controller-runtime's environment for tests takes a server of package quoratetest for
// a cluster that exists, as that package says: it installs definitions, and its clients work.
func TestEnvtest(t *testing.T) {
	useExisting, keep := true, true
	env := &envtest.Environment{
		UseExistingCluster: &useExisting, Config: quoratetest.Start(t).Config(),
		CRDInstallOptions: envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{{
			TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
			ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
				Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList"},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
					Name: "v1", Served: true, Storage: true,
					Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
						Type: "object", XPreserveUnknownFields: &keep,
					}},
				}},
			},
		}}},
	}
	config, err := env.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	}()
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	widget := func() *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		u.SetAPIVersion("example.com/v1")
		u.SetKind("Widget")
		u.SetNamespace("default")
		u.SetName("first")
		return u
	}
	if err := c.Create(t.Context(), widget()); err != nil {
		t.Fatal(err)
	}
	got := widget()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(got), got); err != nil || got.GetUID() == "" {
		t.Errorf("%v, %v", got.Object, err)
	}
}
