package quoratetest_test

import (
	"context"
	"fmt"
	"log"

	"github.com/quorate/quorate/quoratetest"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// A test calls Start(t) instead, and has nothing to stop.
func Example() {
	ctx := context.Background()
	s, err := quoratetest.Open(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Stop()

	client, err := corev1client.NewForConfig(s.Config())
	if err != nil {
		log.Fatal(err)
	}
	hello := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "hello"}, Data: map[string]string{"to": "world"}}
	if _, err := client.ConfigMaps("default").Create(ctx, hello, metav1.CreateOptions{}); err != nil {
		log.Fatal(err)
	}
	got, err := client.ConfigMaps("default").Get(ctx, "hello", metav1.GetOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("hello", got.Data["to"])
	// Output: hello world
}
