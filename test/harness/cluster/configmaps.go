package cluster

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConfigMaps is the path of the ConfigMaps of the namespace default.
const ConfigMaps = "/api/v1/namespaces/default/configmaps"

// CreateMany makes ConfigMaps of 1 KiB each.
func CreateMany(t *testing.T, node *Node, n int) {
	t.Helper()
	client := node.Typed(t).CoreV1().ConfigMaps("default")
	var wg sync.WaitGroup
	var failed atomic.Pointer[error]
	for w := range 32 {
		wg.Go(func() {
			for i := w; i < n && failed.Load() == nil; i += 32 {
				cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c-%05d", i)}, Data: map[string]string{"k": strings.Repeat(string(rune('a'+i%26)), 1<<10)}}
				if _, err := client.Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		t.Fatal(*err)
	}
}
