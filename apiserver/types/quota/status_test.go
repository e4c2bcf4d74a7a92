package quota_test

import (
	"encoding/json"
	"testing"

	"github.com/quorate/quorate/apiserver/types/quota"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// TestStatus: a status is made when the one that is there says something else, and says the rest
// of it, too.
func TestStatus(t *testing.T) {
	for _, row := range []struct {
		name, quota string
		used        []int64 // by bound
		want        string  // "": the status says the same
	}{
		{"the first one", `{"spec":{"hard":{"pods":"3","cpu":"2"}}}`, []int64{1500, 2}, `{"hard":{"cpu":"2","pods":"3"},"used":{"cpu":"1500m","pods":"2"}}`},
		{"the spelling of the bound", `{"spec":{"hard":{"memory":"2Gi"}}}`, []int64{1 << 30}, `{"hard":{"memory":"2Gi"},"used":{"memory":"1Gi"}}`},
		{"the same", `{"spec":{"hard":{"pods":"3"}},"status":{"hard":{"pods":"3"},"used":{"pods":"2"}}}`, []int64{2}, ""},
		{
			"the same in another spelling",
			`{"spec":{"hard":{"memory":"1Gi"}},"status":{"hard":{"memory":"1024Mi"},"used":{"memory":"1024"}}}`, []int64{1 << 10}, "",
		},
		{
			"another use, and more in the status",
			`{"spec":{"hard":{"pods":"3"}},"status":{"hard":{"pods":"3"},"used":{"pods":"2"},"later":"x"}}`, []int64{1},
			`{"hard":{"pods":"3"},"later":"x","used":{"pods":"1"}}`,
		},
		{
			"another bound", `{"spec":{"hard":{"pods":"4"}},"status":{"hard":{"pods":"3"},"used":{"pods":"2"}}}`, []int64{2},
			`{"hard":{"pods":"4"},"used":{"pods":"2"}}`,
		},
		{
			"one more bound", `{"spec":{"hard":{"pods":"4","cpu":"1"}},"status":{"hard":{"pods":"4"},"used":{"pods":"2"}}}`, []int64{0, 2},
			`{"hard":{"cpu":"1","pods":"4"},"used":{"cpu":"0","pods":"2"}}`,
		},
		{
			"a bound of nothing for another", `{"spec":{"hard":{"cpu":"0"}},"status":{"hard":{"pods":"0"},"used":{"pods":"0"}}}`, []int64{0},
			`{"hard":{"cpu":"0"},"used":{"cpu":"0"}}`,
		},
		{
			"a bound that nothing uses", `{"spec":{"hard":{"pods":"4","later":"1"}}}`, []int64{1},
			`{"hard":{"later":"1","pods":"4"},"used":{"pods":"1"}}`,
		},
		{"uses that are those of other bounds", `{"spec":{"hard":{"pods":"3"}}}`, []int64{1, 2}, `{"hard":{"pods":"3"}}`},
		{"no bounds", `{"spec":{}}`, nil, ""},
		{"no bounds any more", `{"spec":{},"status":{"hard":{"pods":"3"},"used":{"pods":"2"}}}`, nil, `{}`},
	} {
		var obj tree.Object
		must.OK(t, json.Unmarshal([]byte(row.quota), &obj))
		var used []mvcc.BoundUse
		for _, n := range row.used {
			used = append(used, mvcc.BoundUse{Used: n})
		}
		var got string
		if status := quota.Status(obj, used); status != nil {
			raw, err := json.Marshal(status)
			must.OK(t, err)
			got = string(raw)
		}
		if got != row.want {
			t.Errorf("%s:\n got %s\nwant %s", row.name, got, row.want)
		}
		if before, _ := json.Marshal(obj); !json.Valid(before) || string(before) != canonical(t, row.quota) {
			t.Errorf("%s: the quota was changed to %s", row.name, before)
		}
	}
}

// canonical is JSON as this package's maps are written.
func canonical(t *testing.T, text string) string {
	t.Helper()
	var v any
	must.OK(t, json.Unmarshal([]byte(text), &v))
	raw, err := json.Marshal(v)
	must.OK(t, err)
	return string(raw)
}
