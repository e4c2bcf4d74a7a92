package clients

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/quorate/quorate/test/harness/cluster"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// assets is a directory with links to our program by the names of those that envtest starts.
func assets(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"kube-apiserver", "etcd"} {
		if err := os.Symlink(cluster.Binary(), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestEnvtestAssets: envtest starts our program where it starts kube-apiserver and etcd otherwise. What a test finds is
// a cluster: namespaces end, with what is in them.
func TestEnvtestAssets(t *testing.T) {
	env := &envtest.Environment{BinaryAssetsDirectory: assets(t), AttachControlPlaneOutput: testing.Verbose()}
	began := time.Now()
	config, err := env.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("started in %s", time.Since(began))
	stopped := false
	stop := func() {
		if stopped {
			return
		}
		stopped = true
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	}
	defer stop()
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "one"}}
	in := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "one", Name: "inside"}}
	for _, obj := range []client.Object{ns, in} {
		if err := c.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Delete(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	for _, obj := range []client.Object{ns, in} {
		cluster.Await(t, 20*time.Second, "the namespace ends", func() string {
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(obj), obj); !apierrors.IsNotFound(err) {
				return "it is there still"
			}
			return ""
		})
	}
	began = time.Now()
	stop()
	t.Logf("stopped in %s", time.Since(began))
}
