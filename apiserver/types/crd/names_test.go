package crd_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/types/crd"
)

// TestAcceptNames is upstream's decisions about names: the first come keeps them, a conflict
// says which name, and what is decided is left alone.
func TestAcceptNames(t *testing.T) {
	wanted := func(name, names, status string) string {
		group := name[strings.IndexByte(name, '.')+1:]
		return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"group":%q,"scope":"Cluster","names":{%s},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]},"status":{%s}}`, name, group, names, status)
	}
	const (
		a        = `"plural":"as","singular":"a","kind":"A","listKind":"AList"`
		takesA   = `"plural":"bs","singular":"b","kind":"A","listKind":"BList"`
		takesAs  = `"plural":"bs","singular":"b","kind":"B","listKind":"BList","shortNames":["as"]`
		singular = `"plural":"bs","singular":"a","kind":"B","listKind":"BList"`
		list     = `"plural":"bs","singular":"b","kind":"B","listKind":"AList"`
		served   = `"acceptedNames":{"plural":"as","singular":"a","kind":"A","listKind":"AList"},"conditions":[{"type":"NamesAccepted","status":"True","reason":"NoConflicts","message":"no conflicts found"},{"type":"Established","status":"True"}]`
		fresh    = `"acceptedNames":{"plural":"","kind":""}`
	)
	for _, test := range []struct {
		what        string
		definitions map[string]string
		want        string // name type=status/reason: message, of what changes
	}{
		{"alone", map[string]string{"as.x.org": wanted("as.x.org", a, fresh)},
			"as.x.org NamesAccepted=True/NoConflicts Established=True/InitialNamesAccepted"},
		{"decided", map[string]string{"as.x.org": wanted("as.x.org", a, served)}, ""},
		{"the kind is taken", map[string]string{"as.x.org": wanted("as.x.org", a, served), "bs.x.org": wanted("bs.x.org", takesA, fresh)},
			`bs.x.org NamesAccepted=False/KindConflict("A" is already in use) Established=False/NotAccepted`},
		{"the list's kind is taken", map[string]string{"as.x.org": wanted("as.x.org", a, served), "bs.x.org": wanted("bs.x.org", list, fresh)},
			`bs.x.org NamesAccepted=False/ListKindConflict("AList" is already in use) Established=False/NotAccepted`},
		{"the singular is taken", map[string]string{"as.x.org": wanted("as.x.org", a, served), "bs.x.org": wanted("bs.x.org", singular, fresh)},
			`bs.x.org NamesAccepted=False/SingularConflict("a" is already in use) Established=False/NotAccepted`},
		{"a short name is another's plural", map[string]string{"as.x.org": wanted("as.x.org", a, served), "bs.x.org": wanted("bs.x.org", takesAs, fresh)},
			`bs.x.org NamesAccepted=False/ShortNamesConflict("as" is already in use) Established=False/NotAccepted`},
		{"in another group nothing is taken", map[string]string{"as.x.org": wanted("as.x.org", a, served), "bs.y.org": wanted("bs.y.org", takesA, fresh)},
			`bs.y.org NamesAccepted=True/NoConflicts Established=True/InitialNamesAccepted`},
		{"of two at once the first by name", map[string]string{"as.x.org": wanted("as.x.org", a, fresh), "bs.x.org": wanted("bs.x.org", takesA, fresh)},
			`as.x.org NamesAccepted=True/NoConflicts Established=True/InitialNamesAccepted | bs.x.org NamesAccepted=False/KindConflict("A" is already in use) Established=False/NotAccepted`},
		{"established stays so with another wish", map[string]string{"as.x.org": wanted("as.x.org", strings.Replace(a, `"a"`, `"c"`, 1), served)},
			`as.x.org NamesAccepted=True/NoConflicts Established=True/`},
		{"a community group says whether it is approved", map[string]string{"as.a.k8s.io": wanted("as.a.k8s.io", a, fresh)},
			`as.a.k8s.io KubernetesAPIApprovalPolicyConformant=False/MissingAnnotation NamesAccepted=True/NoConflicts Established=True/InitialNamesAccepted`},
		{"nobody could trust the webhook", map[string]string{"as.x.org": strings.Replace(wanted("as.x.org", a, fresh), `"scope":`, `"conversion":{"strategy":"Webhook","webhook":{"clientConfig":{"url":"https://x.org","caBundle":"bm9uZQ=="}}},"scope":`, 1)},
			`as.x.org NamesAccepted=True/NoConflicts Established=False/InvalidCABundle`},
	} {
		w := newWorld(t)
		for name, value := range test.definitions {
			w.put(name, value)
		}
		var got []string
		for _, d := range crd.AcceptNames(w.Definitions(), time.Unix(0, 0)) {
			line := d.For.Metadata.Name
			for _, c := range d.Status.Conditions {
				line += fmt.Sprintf(" %s=%s/%s", c.Type, c.Status, c.Reason)
				if c.Status == "False" && c.Type == "NamesAccepted" {
					line += "(" + c.Message + ")"
				}
			}
			got = append(got, line)
		}
		if text := strings.Join(got, " | "); text != test.want {

			t.Errorf("%s:\n%s\nwant\n%s", test.what, text, test.want)
		}
	}
}
