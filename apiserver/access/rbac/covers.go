package rbac

import (
	"context"
	"errors"
	"fmt"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// ErrTooManyCombinations is returned when it takes too long to find out whether a user
// has all that some rules allow.
var ErrTooManyCombinations = errors.New("the rules have too many combinations of groups, resources, verbs and names that differ in who allows them: write them as several roles")

const (
	// maxWork bounds one check, in words of bits that are compared: about 50 ms.
	maxWork = 1 << 26
	// maxKept bounds the sets that one check holds, in words.
	maxKept = 1 << 19
	// maxMissing is how many missing permissions are looked for.
	maxMissing = 1000
	// checkEvery is how many words are read or compared between two looks at the context.
	checkEvery = 1 << 16
)

// bits is a set of the rules that a user has, by their places in the list.
type bits []uint64

func (b bits) add(rules ...int32) {
	for _, i := range rules {
		b[i/64] |= 1 << (i % 64)
	}
}

// and leaves what is in c too.
func (b bits) and(c bits) {
	for i := range b {
		b[i] &= c[i]
	}
}

// meets reports whether two sets have a rule in common.
func (b bits) meets(c bits) bool {
	for i := range b {
		if b[i]&c[i] != 0 {
			return true
		}
	}
	return false
}

// words says which rules allow a word of one list of a rule.
type words struct {
	every bits               // those that allow all
	named map[string][]int32 // those that name the word; few have many
	// reserved, if it is not nil, says of which words those that allow all say nothing.
	reserved func(word string) bool
	// also, if it is not nil, adds the rules that allow a word by another one.
	also func(word string, to bits)
}

// coverage answers whether a user's rules cover others, as upstream's validation.Covers
// does. That one breaks the others down to single permissions, of which 4 KB of a rule
// have 600 million. But a word matters only by which of the user's rules allow it, so
// words that the same ones allow are one, and there are few that differ.
type coverage struct {
	ctx  context.Context
	size int // of the sets, in words
	work int // left
	kept int
	next int // of work, when the context is looked at again
	err  error

	verbs, groups, resources, names, paths words
	unnamed                                bits // the rules for any name
	prefixes                               map[int]struct{}
}

// newCoverage prepares what a user has.
func newCoverage(ctx context.Context, own []rbacv1.PolicyRule) *coverage {
	c := &coverage{ctx: ctx, size: (len(own) + 63) / 64, work: maxWork, next: maxWork, prefixes: map[int]struct{}{}}
	c.unnamed = c.none()
	lists := [...]*words{&c.verbs, &c.groups, &c.resources, &c.names, &c.paths}
	for _, w := range lists {
		w.every, w.named = c.none(), map[string][]int32{}
	}
	prefixed := map[string][]int32{}
	for i := range own {
		r, i := &own[i], int32(i)
		for at, list := range [...][]string{r.Verbs, r.APIGroups, r.Resources, r.ResourceNames, r.NonResourceURLs} {
			for _, word := range list {
				if word == all && at < 3 {
					lists[at].every.add(i)
				}
				lists[at].named[word] = append(lists[at].named[word], i)
			}
		}
		if len(r.ResourceNames) == 0 {
			c.unnamed.add(i)
			c.names.every.add(i)
		}
		for _, path := range r.NonResourceURLs {
			if strings.HasSuffix(path, all) {
				prefix := strings.TrimRight(path, all)
				prefixed[prefix] = append(prefixed[prefix], i)
				c.prefixes[len(prefix)] = struct{}{}
			}
		}
	}
	c.resources.also = func(word string, to bits) {
		if _, sub, ok := strings.Cut(word, "/"); ok {
			to.add(c.resources.named["*/"+sub]...)
		}
	}
	// Who may do all but what is reserved must not give that away.
	everything := administers(own)
	c.groups.reserved = func(group string) bool { return group == ownGroup && !everything }
	c.paths.also = func(path string, to bits) {
		for n := range c.prefixes {
			if n <= len(path) && (everything || !reserved(path) || namesTree(path[:n])) {
				c.spend(1 + n/8)
				to.add(prefixed[path[:n]]...)
			}
		}
	}
	return c
}

func (c *coverage) none() bits { return make(bits, c.size) }

// spend counts work and reports whether there is some left.
func (c *coverage) spend(n int) bool {
	if c.work -= n; c.err == nil && c.work < 0 {
		c.err = ErrTooManyCombinations
	}
	if c.err == nil && c.work < c.next {
		c.next = c.work - checkEvery
		c.err = c.ended()
	}
	return c.err == nil
}

// ended is the error of a context that has ended, else nil. spend looks at it now and then only,
// so whatever ends a comparison looks again.
func (c *coverage) ended() error {
	if err := c.ctx.Err(); err != nil {
		return fmt.Errorf("compare the rules with what the user may do: %w", err)
	}
	return nil
}

// allowing is the set of rules that allow a word.
func (c *coverage) allowing(w *words, word string) bits {
	b := c.none()
	if w.reserved == nil || !w.reserved(word) {
		copy(b, w.every)
	}
	c.spend(len(w.named[word]))
	b.add(w.named[word]...)
	if w.also != nil {
		w.also(word, b)
	}
	return b
}

// side is one list of a rule: the words, and the sets of rules that allow them.
type side struct {
	w       *words
	list    []string
	classes []bits
	common  bits // the rules that allow all words of this side and of those after it
}

// box is all the permissions of a rule: one word of each side.
type box struct {
	sides []side
	begin bits // the rules that can cover any of it
}

// boxes are the permissions of a rule: those of resources, and those of paths.
func (c *coverage) boxes(r *rbacv1.PolicyRule) [2]box {
	each := c.none()
	for i := range each {
		each[i] = ^uint64(0)
	}
	resources := box{begin: each, sides: []side{{w: &c.groups, list: r.APIGroups}, {w: &c.resources, list: r.Resources}, {w: &c.verbs, list: r.Verbs}}}
	if len(r.ResourceNames) > 0 {
		resources.sides = append(resources.sides, side{w: &c.names, list: r.ResourceNames})
	} else {
		resources.begin = c.unnamed
	}
	// Rules for some names say nothing of paths, whatever else is in them.
	paths := box{begin: c.unnamed, sides: []side{{w: &c.paths, list: r.NonResourceURLs}, {w: &c.verbs, list: r.Verbs}}}
	both := [2]box{resources, paths}
	for i := range both {
		c.classify(both[i].sides)
	}
	return both
}

// classify finds the sets of rules that differ, of each side.
func (c *coverage) classify(sides []side) {
	after := c.none()
	for i := range after {
		after[i] = ^uint64(0)
	}
	for i := len(sides) - 1; i >= 0; i-- {
		s := &sides[i]
		if len(s.list) == 0 {
			return // the box is empty
		}
		seen := map[string]struct{}{}
		key := make([]byte, 0, 8*c.size)
		for _, word := range s.list {
			if !c.spend(1 + len(word)/8 + c.size) {
				return
			}
			b := c.allowing(s.w, word)
			key = key[:0]
			for _, x := range b {
				key = append(key, byte(x), byte(x>>8), byte(x>>16), byte(x>>24), byte(x>>32), byte(x>>40), byte(x>>48), byte(x>>56))
			}
			if _, ok := seen[string(key)]; ok {
				continue
			}
			if c.kept += c.size; c.kept > maxKept {
				c.err = ErrTooManyCombinations
				return
			}
			seen[string(key)] = struct{}{}
			s.classes = append(s.classes, b)
			after.and(b)
		}
		s.common = after
		after = append(bits(nil), after...)
	}
}

func empty(sides []side) bool {
	for i := range sides {
		if len(sides[i].list) == 0 {
			return true
		}
	}
	return false
}

// covered reports whether the rules of a set cover all of some sides between them.
func (c *coverage) covered(sides []side, by bits) bool {
	if !c.spend(1 + c.size) {
		return false
	}
	if len(sides) == 0 {
		return by.meets(by)
	}
	if by.meets(sides[0].common) {
		return true // one rule has it all
	}
	for _, class := range sides[0].classes {
		if c.spend(c.size); !by.meets(class) {
			return false
		}
		rest := append(bits(nil), by...)
		rest.and(class)
		if !c.covered(sides[1:], rest) {
			return false
		}
	}
	return true
}

// missing calls f for the words of each permission that is not covered, in the order in
// which upstream breaks a rule down, until f returns false.
func (c *coverage) missing(sides []side, by bits, picked []string, f func(picked []string) bool) bool {
	if len(sides) == 0 {
		return f(picked)
	}
	for _, word := range sides[0].list {
		if !c.spend(1 + len(word)/8 + c.size) {
			return false
		}
		rest := c.allowing(sides[0].w, word)
		rest.and(by)
		if c.covered(sides[1:], rest) {
			continue
		}
		if c.err != nil || !c.missing(sides[1:], rest, append(picked, word), f) {
			return false
		}
	}
	return true
}

// verdict is what a comparison of rules has found. Its zero value grants nothing.
type verdict struct {
	// covered says that own rules cover the others. It is set in one place, after each box was
	// found covered while the context had not ended.
	covered bool
	// missing are permissions that are not covered, one each; more says that these are not all.
	missing []rbacv1.PolicyRule
	more    bool
}

// covers finds out whether own rules cover others. Errors: ErrTooManyCombinations, and that of the
// context: a comparison that was cut short has no verdict.
func covers(ctx context.Context, own, others []rbacv1.PolicyRule) (verdict, error) {
	c := newCoverage(ctx, own)
	v, whole := verdict{}, true
	for i := range others {
		c.kept = 0
		for part, b := range c.boxes(&others[i]) {
			has := empty(b.sides) || c.covered(b.sides, b.begin)
			if c.err != nil {
				return verdict{}, c.err
			}
			if has {
				continue
			}
			whole = false
			v.more = !c.missing(b.sides, b.begin, nil, func(picked []string) bool {
				v.missing = append(v.missing, single(part, picked))
				return len(v.missing) < maxMissing
			})
			switch err := c.ended(); {
			case err != nil:
				return verdict{}, err
			case v.more && len(v.missing) == 0:
				return verdict{}, c.err
			case v.more:
				return v, nil
			}
		}
	}
	if err := c.ended(); err != nil {
		return verdict{}, err
	}
	v.covered = whole
	return v, nil
}

// single is the rule of one permission of a box.
func single(part int, picked []string) rbacv1.PolicyRule {
	if part == 1 {
		return rbacv1.PolicyRule{NonResourceURLs: []string{picked[0]}, Verbs: []string{picked[1]}}
	}
	r := rbacv1.PolicyRule{APIGroups: []string{picked[0]}, Resources: []string{picked[1]}, Verbs: []string{picked[2]}}
	if len(picked) > 3 {
		r.ResourceNames = []string{picked[3]}
	}
	return r
}
