package objects

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/quorate/quorate/consistency"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FuzzListOptions: of any query, list and watch refuse with 422 exactly what
// upstream does, in the same words, and read nothing that upstream cannot read.
func FuzzListOptions(f *testing.F) {
	for _, q := range []string{
		"resourceVersion=1&resourceVersionMatch=Exact&limit=2", "resourceVersion=0&resourceVersionMatch=Exact", "resourceVersionMatch=x%22%0a&continue=y",
		"sendInitialEvents=&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=0", "sendInitialEvents=FALSE&resourceVersion=0", "limit=-1&timeoutSeconds=%2B7", "limit=1e3",
		"continue=a&resourceVersion=0", "resourceVersionMatch=", "sendInitialEvents=no&resourceVersionMatch=exact&continue=&resourceVersion=",
	} {
		f.Add(q, false)
		f.Add(q, true)
	}
	f.Fuzz(func(t *testing.T, raw string, watch bool) {
		values, err := url.ParseQuery(raw)
		if err != nil || values.Has("labelSelector") || values.Has("fieldSelector") || values.Has("shardSelector") || values.Has("watch") {
			return // read elsewhere
		}
		verb, plan := "list", consistency.PlanList
		if watch {
			verb, plan = "watch", consistency.PlanWatch
		}
		var o Op
		err = o.Options.Parse(raw, verb)
		if err == nil {
			_, err = plan(o.ListParams(&Selection{}))
		}
		var theirs internalversion.ListOptions
		unreadable := scheme.ParameterCodec.DecodeParameters(values, metav1.SchemeGroupVersion, &theirs)
		if unreadable != nil {
			if err == nil {
				t.Fatalf("%s %q passes, upstream says %v", verb, raw, unreadable)
			}
			return
		}
		for name, given := range values {
			if len(given) > 1 || len(given[0]) > 1 && name == "resourceVersion" && given[0][0] == '0' || name == "timeout" || name == "maxStaleness" {
				return // where we differ, see apiserver/DESIGN.md
			}
		}
		theirs.Watch = watch
		internalversion.SetListOptionsDefaults(&theirs, true)
		want := ""
		if errs := validation.ValidateListOptions(&theirs, true); len(errs) > 0 {
			want = fmt.Sprintf(`ListOptions.meta.k8s.io "" is invalid: %v`, errs.ToAggregate())
		}
		got := ""
		var refusal *consistency.Refusal
		if errors.As(err, &refusal) && refusal.Kind == consistency.Invalid {
			got = refusal.Message
		}
		if got != want && !strings.Contains(want, `\x`) {
			t.Fatalf("%s %q:\n got %s (%v)\nwant %s", verb, raw, got, err, want)
		}
	})
}
