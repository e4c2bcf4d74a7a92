package tree

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/cputime"
	"github.com/quorate/quorate/internal/must"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestParseQuantity: what would take seconds to compare is no quantity.
func TestParseQuantity(t *testing.T) {
	for _, text := range []string{
		"1e1001", "1e-1001", "1E+1001", "1e10000000", "1e-10000000", "1e2147483647", "1e99999999999999999999999", "-1e10000000",
		"0.1e0000010000000", strings.Repeat("9", 1001), "0." + strings.Repeat("0", 1000) + "1",
	} {
		if _, err := ParseQuantity(text); !errors.Is(err, errQuantityTooLong) {
			t.Errorf("%.40s: %v", text, err)
		}
	}
	for _, text := range []string{"1", "1e3", "1E3", "1E", "1Ei", "1e+3", "1e-3", "1e0000003", "100m", "1e30"} {
		if q, err := ParseQuantity(text); err != nil || q.Cmp(resource.MustParse(text)) != 0 {
			t.Errorf("%s: %v, %v", text, q.String(), err)
		}
	}
	for _, text := range []string{"", "e", "1e", "1ex", "1e5x", "x"} {
		if _, err := ParseQuantity(text); err == nil || errors.Is(err, errQuantityTooLong) {
			t.Errorf("%q: %v", text, err)
		}
	}
	// The greatest that is left is compared at once.
	for _, text := range []string{"1e1000", "1e-1000", strings.Repeat("9", 995) + "e999"} {
		q, err := ParseQuantity(text)
		must.OK(t, err)
		took := cputime.Of(func() {
			for range 1000 {
				_ = q.CmpInt64(1)
			}
		})
		if took > 2*time.Second {
			t.Errorf("1,000 comparisons with %.10s took %s", text, took)
		}
	}
}
