package apiserver_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// fieldsOf shows an answer's managedFields, an entry a line: who, how, in which
// version, and the fields.
func fieldsOf(answer string) ([]string, error) {
	var o struct{ Metadata metav1.ObjectMeta }
	if err := json.Unmarshal([]byte(answer), &o); err != nil {
		return nil, err
	}
	lines := []string{}
	for _, e := range o.Metadata.ManagedFields {
		set := fieldpath.NewSet()
		if err := set.FromJSON(e.FieldsV1.GetRawReader()); err != nil {
			return nil, err
		}
		var paths []string
		set.Iterate(func(p fieldpath.Path) { paths = append(paths, p.String()) })
		slices.Sort(paths)
		sub := ""
		if e.Subresource != "" {
			sub = " on " + e.Subresource
		}
		if e.Operation == metav1.ManagedFieldsOperationUpdate && e.Time.IsZero() || e.FieldsType != "FieldsV1" {
			return nil, fmt.Errorf("%s: time %v, %q", e.Manager, e.Time, e.FieldsType)
		}
		lines = append(lines, fmt.Sprintf("%s %s %s%s: %s", e.Manager, e.Operation, e.APIVersion, sub, strings.Join(paths, " ")))
	}
	slices.Sort(lines) // the library's order goes by time, in whole seconds
	return lines, nil
}
