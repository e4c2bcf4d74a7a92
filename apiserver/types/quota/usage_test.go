package quota_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/types/quota"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
)

// TestUsage runs testdata/usage.txt: an object, and what it uses or limits.
func TestUsage(t *testing.T) {
	raw, err := os.ReadFile("testdata/usage.txt")
	must.OK(t, err)
	now := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	var got string
	for i, line := range strings.Split(strings.TrimSpace(string(raw)), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		if want, ok := strings.CutPrefix(line, "="); ok {
			if got != strings.TrimSpace(want) {
				t.Errorf("line %d:\n got %s\nwant%s", i+1, got, want)
			}
			continue
		}
		resource, body, _ := strings.Cut(line, " ")
		var obj tree.Object
		if strict, err := kjson.UnmarshalStrict([]byte(body), &obj); err != nil || len(strict) > 0 || !json.Valid([]byte(body)) {
			t.Fatalf("line %d: %v, %v", i+1, err, strict)
		}
		if resource == "resourcequotas" {
			got = describeLimits(quota.LimitsOf(obj, func(gr schema.GroupResource) string { return gr.String() }))
			continue
		}
		u, ok := quota.Of(schema.ParseGroupResource(resource), obj, now)
		if !ok {
			t.Fatalf("line %d: nothing is known of %s", i+1, resource)
		}
		got = describeUsage(u.Entry())
	}
}

// TestSpelling: a claim that has what it asks for is shown as it asks.
func TestSpelling(t *testing.T) {
	for has, want := range map[string]string{"1073741824": "1Gi", "1": "1Gi", "2147483648": "2147483648"} {
		u, _ := quota.Of(quota.VolumeClaims, tree.Object{
			"spec":   tree.Object{"resources": tree.Object{"requests": tree.Object{"storage": "1Gi"}}},
			"status": tree.Object{"allocatedResources": tree.Object{"storage": has}},
		}, time.Time{})
		if q := u.Get("requests.storage"); q.String() != want {
			t.Errorf("a claim that asks for 1Gi and has %s uses %s, want %s", has, q.String(), want)
		}
	}
}

func describeUsage(u *proto.Usage) string {
	var out strings.Builder
	for _, f := range u.GetFacts() {
		out.WriteString(f.Name)
		if f.Value != "" {
			out.WriteString("=" + f.Value)
		}
		out.WriteString(" ")
	}
	for _, f := range u.GetMoreFacts() {
		out.WriteString("also:" + f.Name + "=" + f.Value + " ")
	}
	out.WriteString("|")
	for _, a := range u.GetAmounts() {
		fmt.Fprintf(&out, " %s=%d", a.Name, a.Value)
	}
	return out.String()
}

func describeLimits(limits []*proto.Limit) string {
	var out strings.Builder
	for _, l := range limits {
		for _, r := range l.Requirements {
			fmt.Fprintf(&out, "%s:%s:%s ", r.Name, strings.TrimPrefix(r.Operator.String(), "OPERATOR_"), strings.Join(r.Values, ","))
		}
		out.WriteString("|")
		for _, b := range l.Bounds {
			if b.Table != "" {
				fmt.Fprintf(&out, " %s#%d", b.Name, b.Max)
			} else {
				fmt.Fprintf(&out, " %s<%d", b.Name, b.Max)
			}
		}
	}
	return out.String()
}
