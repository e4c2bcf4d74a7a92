package rbac

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/internal/cputime"
	"github.com/quorate/quorate/internal/must"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/component-helpers/auth/rbac/validation"
)

// randomRules draws rules of few words, so that they often cover each other.
func randomRules(r *rand.Rand, most int) []rbacv1.PolicyRule {
	pick := func(least, most int, of ...string) []string {
		var out []string
		for range least + r.IntN(most-least+1) {
			out = append(out, of[r.IntN(len(of))])
		}
		return out
	}
	rules := make([]rbacv1.PolicyRule, 1+r.IntN(most))
	for i := range rules {
		rules[i] = rbacv1.PolicyRule{
			Verbs:         pick(0, 3, "get", "list", "put", "get", "list", "*"),
			APIGroups:     pick(0, 2, "", "apps", "batch", "*"),
			Resources:     pick(0, 3, "pods", "pods/log", "*/log", "jobs", "jobs/log", "a/b/c", "*/b/c", "*"),
			ResourceNames: pick(0, max(0, r.IntN(4)-1), "a", "b", "*", ""),
		}
		if r.IntN(3) == 0 {
			rules[i].NonResourceURLs = pick(1, 2, "/x", "/x/*", "/x/y", "/*", "*", "/x**", "")
		}
	}
	return rules
}

// TestCoversAsUpstream: the answer, and what is missing, are upstream's.
func TestCoversAsUpstream(t *testing.T) {
	covered := 0
	for seed := range uint64(20_000) {
		r := rand.New(rand.NewPCG(seed, 1))
		own, others := randomRules(r, 5), randomRules(r, 2)
		if r.IntN(20) == 0 {
			for range 7 { // more than a word of bits
				own = append(own, randomRules(r, 20)...)
			}
		}
		want, left := validation.Covers(own, others)
		got, err := covers(context.Background(), own, others)
		if err != nil || got.more || want != got.covered || fmt.Sprint(describeAll(got.missing)) != fmt.Sprint(describeAll(left)) {
			t.Fatalf("seed %d: own %v\nothers %v\n%+v, %v\nupstream %t %v", seed, own, others, got, err, want, left)
		}
		if want {
			covered++
		}
	}
	if covered < 1000 || covered > 19_000 {
		t.Errorf("%d of 20000 were covered: the rules say little", covered)
	}
}

// manyWords is n words.
func manyWords(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprint(prefix, i)
	}
	return out
}

// TestLargeRules: rules of many combinations are compared at once, no matter who writes them.
func TestLargeRules(t *testing.T) {
	wide := []rbacv1.PolicyRule{{Verbs: manyWords("v", 400), APIGroups: manyWords("g", 400), Resources: manyWords("r", 400), ResourceNames: manyWords("n", 400)}}
	named := rbacv1.PolicyRule{Verbs: []string{"*"}, APIGroups: manyWords("g", 400), Resources: []string{"*"}}
	// Each rule has other words than the others, of each list.
	var scattered []rbacv1.PolicyRule
	for range 300 {
		r := rbacv1.PolicyRule{}
		for i := range 400 {
			n := len(scattered)
			if (i*2654435761+n*40503)>>7%2 == 0 {
				r.Verbs, r.APIGroups = append(r.Verbs, fmt.Sprint("v", i)), append(r.APIGroups, fmt.Sprint("g", (i+n)%400))
				r.Resources, r.ResourceNames = append(r.Resources, fmt.Sprint("r", (i+2*n)%400)), append(r.ResourceNames, fmt.Sprint("n", (i+3*n)%400))
			}
		}
		scattered = append(scattered, r)
	}
	for _, row := range []struct {
		name string
		own  []rbacv1.PolicyRule
		say  string // nothing: covered
	}{
		{"an administrator", Everything, ""},
		{"all groups by name", []rbacv1.PolicyRule{named}, ""},
		{"all but one", []rbacv1.PolicyRule{{Verbs: []string{"*"}, APIGroups: manyWords("g", 399), Resources: []string{"*"}}}, `{APIGroups:["g399"], Resources:["r0"]`},
		{"nothing", nil, "... and more"},
		{"scattered", scattered, "not currently held"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var v verdict
			var err error
			took := cputime.Of(func() { v, err = covers(context.Background(), row.own, wide) })
			switch text := reasonOf(describeAll(v.missing), v.more); {
			case errors.Is(err, ErrTooManyCombinations) && row.name == "scattered":
			case err != nil:
				t.Fatal(err)
			case v.covered != (row.say == ""), !strings.Contains("not currently held\n"+text, row.say), len(text) > maxReason+100:
				t.Errorf("%d missing, %d bytes: %.300s", len(v.missing), len(text), text)
			}
			// It was minutes.
			if took > 20*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
	s := newStored(t)
	err := s.z.ConfirmNoEscalation(context.Background(), &auth.User{Name: "u"}, "", wide)
	if err == nil || len(err.Error()) > maxReason+200 || !strings.HasSuffix(err.Error(), "... and more") {
		t.Errorf("the refusal: %.300v", err)
	}
}

// TestCoversEnds: a check ends with its request, and is bounded.
func TestCoversEnds(t *testing.T) {
	// Word i is allowed by all rules but i, so no two are alike, and what one rule
	// lacks another has: all combinations have to be looked at.
	const n = 90
	own := make([]rbacv1.PolicyRule, n)
	for i := range own {
		but := func(prefix string) []string {
			words := manyWords(prefix, n)
			return append(words[:i:i], words[i+1:]...)
		}
		own[i] = rbacv1.PolicyRule{Verbs: but("v"), APIGroups: but("g"), Resources: but("r"), ResourceNames: but("n")}
	}
	others := []rbacv1.PolicyRule{{Verbs: manyWords("v", n), APIGroups: manyWords("g", n), Resources: manyWords("r", n), ResourceNames: manyWords("n", n)}}
	if _, err := covers(context.Background(), own, others); !errors.Is(err, ErrTooManyCombinations) {
		t.Errorf("without an end: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := covers(ctx, own, others); !errors.Is(err, context.Canceled) {
		t.Errorf("of a request that has ended: %v", err)
	}
}

// TestCoversKeepsLittle: each word that other rules allow takes memory for all of the user's
// rules. The comparison itself is short, so its own bound does not refuse them.
func TestCoversKeepsLittle(t *testing.T) {
	for n, want := range map[int]error{4000: nil, 7000: ErrTooManyCombinations} { // 4000 * 4000/64 words
		rule := rbacv1.PolicyRule{Verbs: manyWords("v", n), APIGroups: []string{"g"}, Resources: []string{"r"}}
		var own []rbacv1.PolicyRule
		for _, verb := range rule.Verbs {
			own = append(own, rbacv1.PolicyRule{Verbs: []string{verb}, APIGroups: rule.APIGroups, Resources: rule.Resources})
		}
		if v, err := covers(t.Context(), own, []rbacv1.PolicyRule{rule}); !errors.Is(err, want) || v.covered != (want == nil) {
			t.Errorf("%d rules: covered %v, %v", n, v.covered, err)
		}
	}
}

// TestSpend: work is counted to the last word, and the context is looked at once in checkEvery words.
func TestSpend(t *testing.T) {
	ctx := &endsLater{Context: context.Background(), after: 1 << 30}
	c := newCoverage(ctx, nil)
	for i, step := range []struct {
		words, looks int
		left         bool
	}{
		{1, 1, true},
		{checkEvery, 1, true},
		{1, 2, true},
		{maxWork - checkEvery - 2, 3, true},
		{1, 3, false},
		{2 * checkEvery, 3, false},
	} {
		if left := c.spend(step.words); left != step.left || ctx.looks != step.looks {
			t.Errorf("step %d: left %v, %d looks", i, left, ctx.looks)
		}
	}
}

// TestWorkOfLongWords: a word counts with its length, since it is compared and looked up, and with
// the sets of rules that are made for it.
func TestWorkOfLongWords(t *testing.T) {
	const rules, words = 640, 8000 / 8 // a set has ten words
	own := make([]rbacv1.PolicyRule, rules)
	for i := range own {
		own[i] = rbacv1.PolicyRule{Verbs: []string{"v"}}
	}
	long := strings.Repeat("x", 8*words)
	own[0].NonResourceURLs = []string{long + "*"}
	for _, row := range []struct {
		name string
		do   func(c *coverage)
		want int
	}{
		{"a path below a long prefix", func(c *coverage) { c.allowing(&c.paths, long+"y") }, 1 + words},
		{"words that are told apart", func(c *coverage) {
			c.classify([]side{{w: &c.verbs, list: []string{long, long}}})
		}, 2 * (1 + words + rules/64)},
		{"words that are missing", func(c *coverage) {
			c.missing([]side{{w: &c.verbs, list: []string{long, long}}}, c.none(), nil, func([]string) bool { return true })
		}, 2 * (1 + words + rules/64 + 1 + rules/64)}, // each is compared once more, with nothing behind it
	} {
		c := newCoverage(context.Background(), own)
		if row.do(c); maxWork-c.work != row.want {
			t.Errorf("%s: %d words of work, want %d", row.name, maxWork-c.work, row.want)
		}
	}
}

// TestKeptToTheBound: as many sets are kept as the bound says, and not one more.
func TestKeptToTheBound(t *testing.T) {
	own := []rbacv1.PolicyRule{{Verbs: []string{"a"}}, {Verbs: []string{"b"}}}
	for n, want := range map[int]error{2: nil, 3: ErrTooManyCombinations} {
		c := newCoverage(context.Background(), own)
		c.kept = maxKept - 2*c.size
		c.classify([]side{{w: &c.verbs, list: []string{"a", "b", "c"}[:n]}})
		if !errors.Is(c.err, want) {
			t.Errorf("%d words: %v, want %v", n, c.err, want)
		}
	}
}

// TestMissingIsBounded: as many permissions are told as the bound says, and that there are more.
func TestMissingIsBounded(t *testing.T) {
	for n, want := range map[int]struct {
		told int
		more bool
	}{1: {1, false}, maxMissing - 1: {maxMissing - 1, false}, maxMissing + 5: {maxMissing, true}} {
		others := []rbacv1.PolicyRule{{Verbs: manyWords("v", n), APIGroups: []string{""}, Resources: []string{"pods"}}}
		v, err := covers(t.Context(), nil, others)
		if err != nil || v.covered || len(v.missing) != want.told || v.more != want.more {
			t.Errorf("%d missing: %d told, more: %v, %v", n, len(v.missing), v.more, err)
		}
	}
}

// TestReasonOf: a refusal is cut behind its bound, not within a letter.
func TestReasonOf(t *testing.T) {
	whole := strings.Repeat("x", maxReason)
	for _, row := range []struct {
		lines []string
		more  bool
		want  string
	}{
		{[]string{"a", "b"}, false, "a\nb"},
		{[]string{"a"}, true, "a... and more"},
		{[]string{whole}, false, whole},
		{[]string{whole + "x"}, false, whole + "... and more"},
		{[]string{whole[1:] + "é"}, false, whole[1:] + "... and more"},
	} {
		if got := reasonOf(row.lines, row.more); got != row.want {
			t.Errorf("%.20q, more: %v: %d bytes that end with %q", row.lines, row.more, len(got), got[max(0, len(got)-20):])
		}
	}
}

// TestAllowsAsUpstream: a request is allowed if upstream says that the rules cover it.
func TestAllowsAsUpstream(t *testing.T) {
	allowed := 0
	for seed := range uint64(5000) {
		r := rand.New(rand.NewPCG(seed, 2))
		pick := func(of ...string) string { return of[r.IntN(len(of))] }
		some := func(n int, of ...string) (out []string) {
			for range n {
				out = append(out, pick(of...))
			}
			return out
		}
		rules := make([]rbacv1.PolicyRule, 1+r.IntN(3))
		for i := range rules {
			rules[i] = rbacv1.PolicyRule{
				Verbs: some(1+r.IntN(2), "get", "list", "*"), APIGroups: some(1+r.IntN(2), "", "apps", "*"),
				Resources:       some(1+r.IntN(3), "pods", "log", "pods/log", "pods/abc", "pods/xlog", "*/log", "/log", "jobs", "*"),
				NonResourceURLs: some(r.IntN(3), "/x", "/x/*", "/x/y", "/*", "*", "/x**"),
			}
		}
		a := auth.Attributes{Verb: pick("get", "list", "put"), User: &auth.User{Name: "u"}}
		single := rbacv1.PolicyRule{Verbs: []string{a.Verb}}
		if a.ResourceRequest = r.IntN(3) > 0; a.ResourceRequest {
			a.APIGroup, a.Resource, a.Subresource, a.Name = pick("", "apps"), pick("pods", "log", "jobs"), pick("", "log", "abc"), pick("", "a", "b")
			for i := range rules {
				rules[i].ResourceNames = some(max(0, r.IntN(4)-1), "a", "b", "")
			}
			what := strings.TrimSuffix(a.Resource+"/"+a.Subresource, "/")
			single.APIGroups, single.Resources, single.ResourceNames = []string{a.APIGroup}, []string{what}, []string{a.Name}
		} else {
			a.Path = pick("/x", "/x/", "/x/y", "/z", "/")
			single.NonResourceURLs = []string{a.Path}
		}
		want, _ := validation.Covers(rules, []rbacv1.PolicyRule{single})
		if got := Allow(rules, &a); got != want {
			t.Fatalf("seed %d: %v\n%+v: %v, upstream %v", seed, rules, a, got, want)
		}
		if want {
			allowed++
		}
	}
	if allowed < 500 || allowed > 4500 {
		t.Errorf("%d of 5000 were allowed: the rules say little", allowed)
	}
}

// endsLater is a context that ends once it was looked at some times.
type endsLater struct {
	context.Context
	looks, after int
}

func (c *endsLater) Err() error {
	if c.looks++; c.looks > c.after {
		return context.Canceled
	}
	return nil
}

// TestCoversNothingWithoutVerdict: a comparison that its context cuts short says nothing, wherever
// the context ends; above all not that nothing is missing.
func TestCoversNothingWithoutVerdict(t *testing.T) {
	everything := rbacv1.PolicyRule{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}}
	many := rbacv1.PolicyRule{Verbs: manyWords("v", 40), APIGroups: []string{"g"}, Resources: manyWords("r", 40)}
	long := rbacv1.PolicyRule{Verbs: manyWords("v", 400), APIGroups: manyWords("g", 400), Resources: []string{"r"}}
	for _, row := range []struct {
		name        string
		own, others []rbacv1.PolicyRule
	}{
		{"more is missing than is told", nil, []rbacv1.PolicyRule{many, everything}},
		{"all that is missing is told", nil, []rbacv1.PolicyRule{everything}},
		{"nothing is asked for", nil, nil},
		{"nothing is missing", Everything, []rbacv1.PolicyRule{many, long, everything}},
		{"long lists", []rbacv1.PolicyRule{{Verbs: []string{"*"}, APIGroups: manyWords("g", 399), Resources: []string{"*"}}}, []rbacv1.PolicyRule{long}},
	} {
		t.Run(row.name, func(t *testing.T) {
			whole := &endsLater{Context: context.Background(), after: 1 << 30}
			want, err := covers(whole, row.own, row.others)
			must.OK(t, err)
			if whole.looks == 0 {
				t.Fatal("the context was not looked at")
			}
			for after := range whole.looks {
				ctx := &endsLater{Context: context.Background(), after: after}
				v, err := covers(ctx, row.own, row.others)
				if !errors.Is(err, context.Canceled) || v.covered || len(v.missing) > 0 {
					t.Errorf("ended at look %d of %d (whole: %t): covered %t, %d missing, %v", after+1, whole.looks, want.covered, v.covered, len(v.missing), err)
				}
			}
		})
	}
	ctx := &endsLater{Context: context.Background(), after: 1}
	if err := newStored(t).z.ConfirmNoEscalation(ctx, &auth.User{Name: "u"}, "", []rbacv1.PolicyRule{many, everything}); err == nil {
		t.Error("a check that was cut short confirms the rules")
	}
}
