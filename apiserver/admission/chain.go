package admission

import (
	"context"
	"time"
)

// Plugin is what Mutator and Validator have in common. Safe for concurrent use.
type Plugin interface {
	// Handles reports whether the plugin may have something to say of a write. It is asked
	// of every write and costs next to nothing: it looks at the resource and the operation.
	Handles(a *Attributes) bool
}

// Mutator is a plugin that may change objects.
type Mutator interface {
	Plugin
	// Admit changes or refuses an object that is about to be written. It is called when the
	// object is complete, and its fields have their owners, and before what the kind has as
	// code prepares it and anything validates it: so nothing that it does is unchecked. It
	// may be called several times for one request: when another plugin asks for it
	// (reinvocation), and when the request is decided again because it has lost a race.
	//
	// What it leaves in a.Object must fit the model. Errors are for the client: Status
	// errors, and the context's.
	Admit(ctx context.Context, a *Attributes) error
}

// Validator is a plugin that may refuse objects that are complete and valid.
type Validator interface {
	Plugin
	// Validate refuses a write. It changes nothing. Errors are those of Admit.
	Validate(ctx context.Context, a *Attributes) error
}

// Interface is the chain as package objects calls it. Safe for concurrent use.
type Interface interface {
	// Handles reports whether any plugin may have something to say of a write.
	Handles(a *Attributes) bool
	// Admit asks the mutators, Validate the validators: see there.
	Admit(ctx context.Context, a *Attributes) error
	Validate(ctx context.Context, a *Attributes) error
}

// Named is a plugin under upstream's name.
type Named struct {
	Name   string
	Plugin Plugin
}

// Phases of a write, in the words of upstream's metrics.
const (
	PhaseAdmit    = "admit"
	PhaseValidate = "validate"
)

// Observer is told how long plugins took. Safe for concurrent use.
type Observer interface {
	// PluginAsked is told of one plugin, StepDone of all plugins of a phase.
	PluginAsked(plugin, phase string, a *Attributes, took time.Duration, rejected bool)
	StepDone(phase string, a *Attributes, took time.Duration, rejected bool)
}

// Chain are the plugins of a server, in their order. The zero Chain admits everything.
type Chain struct {
	mutators   []named[Mutator]
	validators []named[Validator]
	observer   Observer
}

type named[P Plugin] struct {
	name   string
	Plugin P
}

// NewChain returns the chain of plugins, each of which is a Mutator or a Validator. observer
// may be nil.
func NewChain(plugins []Named, observer Observer) *Chain {
	c := &Chain{observer: observer}
	for _, p := range plugins {
		if m, ok := p.Plugin.(Mutator); ok {
			c.mutators = append(c.mutators, named[Mutator]{p.Name, m})
		}
		if v, ok := p.Plugin.(Validator); ok {
			c.validators = append(c.validators, named[Validator]{p.Name, v})
		}
	}
	return c
}

// Handles implements Interface.
func (c *Chain) Handles(a *Attributes) bool {
	for i := range c.mutators {
		if c.mutators[i].Plugin.Handles(a) {
			return true
		}
	}
	for i := range c.validators {
		if c.validators[i].Plugin.Handles(a) {
			return true
		}
	}
	return false
}

// Admit implements Interface: it asks all mutators in their order, and all of them once more
// if one of them has asked for that.
func (c *Chain) Admit(ctx context.Context, a *Attributes) error {
	err := c.admit(ctx, a)
	if err != nil || !a.reinvoked.ShouldReinvoke() {
		return err
	}
	a.reinvoked.SetIsReinvoke()
	return c.admit(ctx, a)
}

func (c *Chain) admit(ctx context.Context, a *Attributes) (err error) {
	began := time.Now()
	for i := range c.mutators {
		p := &c.mutators[i]
		if !p.Plugin.Handles(a) {
			continue
		}
		start := time.Now()
		err = p.Plugin.Admit(ctx, a)
		if c.asked(p.name, PhaseAdmit, a, start, err); err != nil {
			break
		}
	}
	c.done(PhaseAdmit, a, began, err)
	return err
}

// Validate implements Interface: it asks all validators in their order. The first refusal ends it.
func (c *Chain) Validate(ctx context.Context, a *Attributes) (err error) {
	began := time.Now()
	for i := range c.validators {
		p := &c.validators[i]
		if !p.Plugin.Handles(a) {
			continue
		}
		start := time.Now()
		err = p.Plugin.Validate(ctx, a)
		if c.asked(p.name, PhaseValidate, a, start, err); err != nil {
			break
		}
	}
	c.done(PhaseValidate, a, began, err)
	return err
}

func (c *Chain) asked(plugin, phase string, a *Attributes, start time.Time, err error) {
	if c.observer != nil {
		c.observer.PluginAsked(plugin, phase, a, time.Since(start), err != nil)
	}
}

func (c *Chain) done(phase string, a *Attributes, began time.Time, err error) {
	if c.observer != nil {
		c.observer.StepDone(phase, a, time.Since(began), err != nil)
	}
}
