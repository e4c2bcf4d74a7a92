package admission_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/admission"
)

var errRefused = errors.New("refused")

// trace is what was asked of plugins, and what an observer was told, in order.
type trace struct{ lines []string }

func (t *trace) note(format string, args ...any) {
	t.lines = append(t.lines, fmt.Sprintf(format, args...))
}

// PluginAsked and StepDone implement admission.Observer.
func (t *trace) PluginAsked(plugin, phase string, _ *admission.Attributes, took time.Duration, rejected bool) {
	t.note("%s took %t rejected %t in %s", plugin, took >= 0, rejected, phase)
}

func (t *trace) StepDone(phase string, _ *admission.Attributes, took time.Duration, rejected bool) {
	t.note("%s took %t rejected %t", phase, took >= 0, rejected)
}

// mutator and validator are plugins that say when they are asked.
type mutator struct {
	*trace
	name   string
	passes bool // it does not handle the write
	again  bool // it asks for a second round
	err    error
}

func (m mutator) Handles(*admission.Attributes) bool { return !m.passes }

func (m mutator) Admit(_ context.Context, a *admission.Attributes) error {
	m.note("admit %s again %t", m.name, a.GetReinvocationContext().IsReinvoke())
	if m.again {
		a.GetReinvocationContext().SetShouldReinvoke()
	}
	return m.err
}

type validator mutator

func (v validator) Handles(*admission.Attributes) bool { return !v.passes }

func (v validator) Validate(context.Context, *admission.Attributes) error {
	v.note("validate %s", v.name)
	return v.err
}

// both is a mutator and a validator.
type both struct{ mutator }

func (b both) Validate(context.Context, *admission.Attributes) error {
	b.note("validate %s", b.name)
	return nil
}

func TestChain(t *testing.T) {
	for _, c := range []struct {
		name    string
		plugins func(t *trace) []admission.Plugin // called A, B, C
		refused bool
		want    string
	}{
		{"nobody", func(*trace) []admission.Plugin { return nil }, false, ""},
		{"in their order, mutators first", func(t *trace) []admission.Plugin {
			return []admission.Plugin{validator{trace: t, name: "A"}, both{mutator{trace: t, name: "B"}}, mutator{trace: t, name: "C"}}
		}, false, "admit B again false, admit C again false, validate A, validate B"},
		{"what does not handle a write is not asked", func(t *trace) []admission.Plugin {
			return []admission.Plugin{mutator{trace: t, name: "A", passes: true}, validator{trace: t, name: "B", passes: true}, both{mutator{trace: t, name: "C"}}}
		}, false, "admit C again false, validate C"},
		{"the first refusal ends the mutators", func(t *trace) []admission.Plugin {
			return []admission.Plugin{mutator{trace: t, name: "A", err: errRefused, again: true}, mutator{trace: t, name: "B"}}
		}, true, "admit A again false"},
		{"the first refusal ends the validators", func(t *trace) []admission.Plugin {
			return []admission.Plugin{validator{trace: t, name: "A", err: errRefused}, validator{trace: t, name: "B"}}
		}, true, "validate A"},
		{"all mutators are asked once more, not for ever", func(t *trace) []admission.Plugin {
			return []admission.Plugin{mutator{trace: t, name: "A"}, mutator{trace: t, name: "B", again: true}, validator{trace: t, name: "C"}}
		}, false, "admit A again false, admit B again false, admit A again true, admit B again true, validate C"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr := &trace{}
			err := run(t.Context(), admission.NewChain(named(c.plugins(tr)), nil))
			if errors.Is(err, errRefused) != c.refused || (err != nil) != c.refused {
				t.Errorf("error %v", err)
			}
			if got := strings.Join(tr.lines, ", "); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func named(plugins []admission.Plugin) (out []admission.Named) {
	for i, p := range plugins {
		out = append(out, admission.Named{Name: string(rune('A' + i)), Plugin: p})
	}
	return out
}

func run(ctx context.Context, chain *admission.Chain) error {
	a := &admission.Attributes{}
	if err := chain.Admit(ctx, a); err != nil {
		return err
	}
	return chain.Validate(ctx, a)
}

// TestObserver: each plugin that is asked is observed, then the step.
func TestObserver(t *testing.T) {
	tr, silent := &trace{}, &trace{}
	chain := admission.NewChain(named([]admission.Plugin{
		mutator{trace: silent, passes: true}, mutator{trace: silent}, validator{trace: silent}, validator{trace: silent, err: errRefused}, validator{trace: silent},
	}), tr)
	if err := run(t.Context(), chain); !errors.Is(err, errRefused) {
		t.Fatal(err)
	}
	want := []string{
		"B took true rejected false in admit", "admit took true rejected false",
		"C took true rejected false in validate", "D took true rejected true in validate", "validate took true rejected true",
	}
	if !slices.Equal(tr.lines, want) {
		t.Errorf("got  %q\nwant %q", tr.lines, want)
	}
}

// TestRefusedMutation: the observer learns that a mutator has refused.
func TestRefusedMutation(t *testing.T) {
	tr := &trace{}
	chain := admission.NewChain(named([]admission.Plugin{mutator{trace: &trace{}, err: errRefused}}), tr)
	if err := run(t.Context(), chain); !errors.Is(err, errRefused) {
		t.Fatal(err)
	}
	if want := []string{"A took true rejected true in admit", "admit took true rejected true"}; !slices.Equal(tr.lines, want) {
		t.Errorf("got %q", tr.lines)
	}
}

func TestHandles(t *testing.T) {
	tr := &trace{}
	for _, c := range []struct {
		name    string
		plugins []admission.Plugin
		want    bool
	}{
		{"nobody", nil, false},
		{"neither", []admission.Plugin{mutator{trace: tr, passes: true}, validator{trace: tr, passes: true}}, false},
		{"a mutator", []admission.Plugin{mutator{trace: tr, passes: true}, mutator{trace: tr}}, true},
		{"a validator", []admission.Plugin{validator{trace: tr, passes: true}, validator{trace: tr}}, true},
	} {
		if got := admission.NewChain(named(c.plugins), nil).Handles(&admission.Attributes{}); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

// TestNothingIsFree: a write that no plugin handles allocates nothing.
func TestNothingIsFree(t *testing.T) {
	tr := &trace{}
	chain := admission.NewChain(named([]admission.Plugin{mutator{trace: tr, passes: true}, validator{trace: tr, passes: true}}), nil)
	a := &admission.Attributes{}
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		a.Reset()
		if chain.Admit(ctx, a) != nil || chain.Validate(ctx, a) != nil {
			t.Error("refused")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
