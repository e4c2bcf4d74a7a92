package cluster

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RootsName is the name of the ConfigMap that a controller writes into every namespace.
const RootsName = "kube-root-ca.crt"

// WithoutRoots is the query of a list or watch of ConfigMaps that leaves it out.
const WithoutRoots = "fieldSelector=metadata.name!=" + RootsName

// Namespace makes a namespace through a node, and waits until the controllers have put into it what
// every namespace has. All that happens in it afterwards is the test's.
func Namespace(t testing.TB, n *Node, name string) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := n.Typed(t).CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatalf("%s: create namespace %s: %v", n.Name, name, err)
	}
	AwaitFurnished(t, n, name)
}

// AwaitFurnished waits until the controllers have put into a namespace what every namespace has. A new cluster
// is ready before they have done so in the namespace default.
func AwaitFurnished(t testing.TB, n *Node, namespace string) {
	t.Helper()
	client := n.Typed(t).CoreV1()
	Await(t, 20*time.Second, "namespace "+namespace+" has its account and its roots", func() string {
		if _, err := client.ServiceAccounts(namespace).Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
			return err.Error()
		}
		if _, err := client.ConfigMaps(namespace).Get(t.Context(), RootsName, metav1.GetOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
}
