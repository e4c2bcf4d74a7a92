package webhook

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	registration "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// TestSource: the handlers are told of what has changed, once, and the lister shows what they
// know of.
func TestSource(t *testing.T) {
	type config = registration.ValidatingWebhookConfiguration
	made := map[string]*config{}
	of := func(versions string) (out []*config) {
		for _, v := range strings.Fields(versions) {
			if made[v] == nil {
				made[v] = &config{ObjectMeta: metav1.ObjectMeta{Name: v[:1], ResourceVersion: v[1:]}}
			}
			out = append(out, made[v])
		}
		return out
	}
	var told []string
	var now []*config
	suspended := ""
	s := &source[*config]{
		webhooks:    func(*config) []hook { return []hook{{}} },
		list:        func() []*config { return now },
		suspended:   func(c *config) bool { return c.Name == suspended },
		suspensions: func() int { return len(suspended) },
	}
	say := func(what string, obj any) {
		c := obj.(*config)
		told = append(told, what+c.Name+c.ResourceVersion)
		if what != "-" && !slices.Contains(s.visible(), c) {
			t.Errorf("the handlers know of %s, which is not listed", c.Name)
		}
	}
	if _, err := s.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { say("+", obj) },
		UpdateFunc: func(_, obj any) { say("~", obj) },
		DeleteFunc: func(obj any) { say("-", obj) },
	}); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ now, suspended, told string }{
		{"", "", ""},
		{"a1 c1", "", "+a1 +c1"},
		{"a1 c1", "", ""},
		{"a1 b1 c2", "", "+b1 ~c2"},
		{"b1 c2 d1", "", "-a1 +d1"},
		{"b1 c2 d1", "c", "-c2"},
		{"b1 c2 d1", "c", ""},
		{"b1 c3 d1", "", "+c3"},
		{"a2", "", "+a2 -b1 -c3 -d1"},
		{"", "", "-a2"},
	} {
		told, now, suspended = nil, of(step.now), step.suspended
		want := len(now) > 0
		if got := len(s.update().hooks) > 0; got != want {
			t.Errorf("%q: %t, want %t", step.now, got, want)
		}
		if got := fmt.Sprint(strings.Join(told, " ")); got != step.told {
			t.Errorf("%q, %q suspended: told %q, want %q", step.now, step.suspended, got, step.told)
		}
	}
}
