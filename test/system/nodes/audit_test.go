//go:build linux

package nodes

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
)

// components are users whose refusals are reported.
var components = []string{"system:node:", "system:kube-"}

// reportRefusals prints what kubelets and the control plane were refused, by request, from the audit logs of all nodes.
// What was to be made in a namespace that ends is left out: everybody is refused that.
func (s *Site) reportRefusals(t *testing.T) {
	t.Helper()
	counts, total := map[string]int{}, 0
	for _, m := range s.control {
		f, err := os.Open(m.path("audit.log"))
		must.OK(t, err)
		defer f.Close()
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var e struct {
				Verb, RequestURI string
				User             struct{ Username string }
				ResponseStatus   struct {
					Code            int
					Message, Reason string
				}
				ObjectRef struct{ Resource, Subresource, Namespace string }
			}
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				t.Fatalf("%s: %v: %s", m.name, err, lines.Text())
			}
			if !slices.ContainsFunc(components, func(c string) bool { return strings.HasPrefix(e.User.Username, c) }) &&
				!strings.HasPrefix(e.User.Username, "system:serviceaccount:kube-system:") {
				continue
			}
			total++
			if e.ResponseStatus.Code >= 400 && !strings.Contains(e.ResponseStatus.Message, "because it is being terminated") {
				counts[fmt.Sprintf("%d %s %s %s/%s", e.ResponseStatus.Code, e.ResponseStatus.Reason, e.Verb, e.ObjectRef.Resource, e.ObjectRef.Subresource)+" "+e.User.Username]++
			}
		}
		must.OK(t, lines.Err())
	}
	var b strings.Builder
	for _, line := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&b, "\n%6d %s", counts[line], line)
	}
	t.Logf("of %d requests of kubelets, kube-proxy, controllers and scheduler these were refused:%s", total, b.String())
}
