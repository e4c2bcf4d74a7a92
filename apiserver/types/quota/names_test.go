package quota_test

import (
	"math"
	"slices"
	"testing"

	"github.com/quorate/quorate/apiserver/types/quota"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// list makes a List of names and quantities in turn.
func list(items ...string) (l quota.List) {
	for i := 0; i < len(items); i += 2 {
		l = append(l, quota.Item{Name: items[i], Quantity: resource.MustParse(items[i+1])})
	}
	return l
}

// TestNamesOf: an amount of a Pod has up to two names in quotas, and each kind that was counted
// before there was count/ two for its place.
func TestNamesOf(t *testing.T) {
	for _, row := range []struct {
		gr   schema.GroupResource
		list quota.List
		want []string
	}{
		{quota.Pods, list("pods", "1", "requests.cpu", "100m", "limits.cpu", "1", "requests.hugepages-2Mi", "2Mi", "requests.example.com/gpu", "1"), []string{
			"count/pods", "pods", "requests.cpu", "cpu", "limits.cpu", "requests.hugepages-2Mi", "hugepages-2Mi", "requests.example.com/gpu",
		}},
		// What is not used has no name, and hides nothing behind it.
		{quota.Pods, list("requests.memory", "0", "requests.cpu", "-1", "requests.ephemeral-storage", "1"), []string{
			"count/pods", "requests.ephemeral-storage", "ephemeral-storage",
		}},
		// A resource of nodes may have the name of a count.
		{quota.Pods, list("requests.count/secrets", "1"), []string{"count/pods", "requests.count/secrets"}},
		// cpu is a name for what Pods use only.
		{quota.VolumeClaims, list("requests.storage", "1", "requests.cpu", "1"), []string{
			"count/persistentvolumeclaims", "persistentvolumeclaims", "requests.storage", "requests.cpu",
		}},
		{quota.Services, nil, []string{"count/services", "services"}},
		{quota.ResourceClaims, list("gpu.deviceclass.resource.k8s.io/devices", "2"), []string{
			"count/resourceclaims.resource.k8s.io", "gpu.deviceclass.resource.k8s.io/devices",
		}},
		{schema.GroupResource{Group: "example.com", Resource: "services"}, nil, []string{"count/services.example.com"}},
	} {
		if got := quota.NamesOf(row.gr, row.list); !slices.Equal(got, row.want) {
			t.Errorf("%v that uses %v:\n got %q\nwant %q", row.gr, row.list, got, row.want)
		}
	}
}

// TestAmounts: what is used is rounded up, and what bounds it down, to whole numbers from 0 to
// the greatest.
func TestAmounts(t *testing.T) {
	const most = math.MaxInt64
	for _, row := range []struct {
		name, quantity string
		amount, bound  int64
	}{
		{"requests.memory", "-1", 0, 0},
		{"requests.memory", "-1500m", 0, 0},
		{"requests.memory", "0", 0, 0},
		{"requests.memory", "1m", 1, 0},
		{"requests.memory", "1", 1, 1},
		{"requests.memory", "1001m", 2, 1},
		{"requests.memory", "9223372036854775806", most - 1, most - 1},
		{"requests.memory", "9223372036854775807", most, most},
		{"requests.cpu", "-1m", 0, 0},
		{"requests.cpu", "1m", 1, 1},
		{"limits.cpu", "1500u", 2, 1},
		{"cpu", "1500u", 1, 0}, // a name of no amount
		// Beside the greatest number of thousandths.
		{"requests.cpu", "9223372036854774", most - 1807, most - 1807},
		{"requests.cpu", "9223372036854775", most - 807, most - 807},
		{"requests.cpu", "9223372036854775806m", most - 1, most - 1},
		{"requests.cpu", "9223372036854775807m", most, most},
		{"requests.cpu", "9223372036854776", most, most},
	} {
		q := resource.MustParse(row.quantity)
		if got := quota.Amount(row.name, q); got != row.amount {
			t.Errorf("%s of %s is %d, want %d", row.quantity, row.name, got, row.amount)
		}
		if got := quota.Bound(row.name, q); got != row.bound {
			t.Errorf("%s bounds %s to %d, want %d", row.quantity, row.name, got, row.bound)
		}
	}
}
