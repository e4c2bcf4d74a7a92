package node_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"os"

	"github.com/quorate/quorate/node"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"
)

// A cluster of one, in a temporary directory and on ports of loopback that the kernel chooses.
func Example() {
	if err := serveOnce(context.Background()); err != nil {
		log.Fatal(err)
	}
	// Output: hello world
}

func serveOnce(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "node-example-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	c := node.Defaults()
	c.DataDir, c.BootstrapExpect = dir, 1
	if c.APIListener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return err
	}
	if c.PeerListener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return errors.Join(err, c.APIListener.Close())
	}
	n, err := node.Open(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	go n.Run(ctx) // an error, such as a port that breaks, would end it; Ready says that it has
	if err := n.Ready(ctx); err != nil {
		return err
	}

	kubeconfig, err := n.Kubeconfig()
	if err != nil {
		return err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return err
	}
	client, err := corev1client.NewForConfig(config)
	if err != nil {
		return err
	}
	hello := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "hello"}, Data: map[string]string{"to": "world"}}
	if _, err := client.ConfigMaps("default").Create(ctx, hello, metav1.CreateOptions{}); err != nil {
		return err
	}
	got, err := client.ConfigMaps("default").Get(ctx, "hello", metav1.GetOptions{})
	if err != nil {
		return err
	}
	fmt.Println("hello", got.Data["to"])
	return nil
}
