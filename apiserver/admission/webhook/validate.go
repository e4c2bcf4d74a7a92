package webhook

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	registration "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	upstream "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/metrics"
	"k8s.io/apiserver/pkg/admission/plugin/webhook"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/generic"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/klog/v2"
)

// patience is how long the answers of validating webhooks are awaited one after the other, in the
// goroutine of the write. What has not come by then each has a goroutine for, so that no webhook
// waits for another one.
const patience = 2 * time.Millisecond

// validatingDispatcher is upstream's, by calls of our own.
type validatingDispatcher struct {
	cm     *webhookutil.ClientManager
	plugin *generic.Webhook
}

// versions are a write in the versions that webhooks want.
type versions struct {
	made       []*upstream.VersionedAttributes
	attr       upstream.Attributes
	interfaces upstream.ObjectInterfaces
}

// VersionedAttribute implements upstream's VersionedAttributeAccessor.
func (v *versions) VersionedAttribute(gvk schema.GroupVersionKind) (*upstream.VersionedAttributes, error) {
	for _, m := range v.made {
		if m.VersionedKind == gvk {
			return m, nil
		}
	}
	m, err := upstream.NewVersionedAttributes(v.attr, gvk, v.interfaces)
	if err == nil {
		v.made = append(v.made, m)
	}
	return m, err
}

// validation is one write that validating webhooks are asked about.
type validation struct {
	ctx  context.Context
	mu   sync.Mutex
	errs []error // in the order in which they came
}

// Dispatch implements upstream's Dispatcher.
func (d *validatingDispatcher) Dispatch(ctx context.Context, attr upstream.Attributes, o upstream.ObjectInterfaces, hooks []webhook.WebhookAccessor) error {
	v := &versions{attr: attr, interfaces: o}
	var calls []*call
	for _, hook := range hooks {
		invocation, refused := d.plugin.ShouldCallHook(ctx, hook, attr, o, v)
		if refused != nil {
			return refused
		}
		if invocation == nil {
			continue
		}
		versioned, err := v.VersionedAttribute(invocation.Kind)
		if err != nil {
			return apierrors.NewInternalError(err)
		}
		calls = append(calls, &call{invocation: invocation, attr: versioned, phase: "validating"})
	}
	if len(calls) == 0 {
		return nil
	}
	if ctx.Err() != nil {
		return apierrors.NewTimeoutError("request did not complete within requested timeout", 0)
	}
	all := &validation{ctx: ctx}
	all.ask(d.cm, calls)
	if len(all.errs) == 0 {
		return nil
	}
	for _, err := range all.errs[1:] {
		utilruntime.HandleError(err)
	}
	return all.errs[0]
}

// ask asks all webhooks at the same time.
func (v *validation) ask(cm *webhookutil.ClientManager, calls []*call) {
	var shared reviews
	under := calls[:0:len(calls)] // of those that the rest is to be done for
	index := make([]int, 0, len(calls))
	for i, c := range calls {
		if v.guard(c, i, func() bool { return v.begin(cm, &shared, c, i) }) {
			under, index = append(under, c), append(index, i)
		}
	}
	until := time.Now().Add(patience)
	left := 0
	for n, c := range under {
		i := index[n]
		if c.arrived(until) {
			v.guard(c, i, func() bool { v.finish(c, i); return true })
			continue
		}
		under[left], index[left] = c, i
		left++
	}
	if left == 0 {
		return
	}
	var wg sync.WaitGroup
	for n, c := range under[:left-1] {
		i := index[n]
		wg.Go(func() { v.guard(c, i, func() bool { v.finish(c, i); return true }) })
	}
	c, i := under[left-1], index[left-1]
	v.guard(c, i, func() bool { v.finish(c, i); return true })
	wg.Wait()
}

// begin sends the review of a webhook. False: it is not to be asked further.
func (v *validation) begin(cm *webhookutil.ClientManager, shared *reviews, c *call, i int) bool {
	hook, ok := c.invocation.Webhook.GetValidatingWebhook()
	if !ok {
		utilruntime.HandleError(fmt.Errorf("validating webhook dispatch requires v1.ValidatingWebhook, but got %T", hook))
		return false
	}
	c.name, c.ignore = hook.Name, hook.FailurePolicy != nil && *hook.FailurePolicy == registration.Ignore
	if err := c.start(cm, shared, hook.SideEffects); err != nil {
		v.decide(c, i, err)
		return false
	}
	c.send(v.ctx, hook.TimeoutSeconds)
	return true
}

// finish awaits the answer.
func (v *validation) finish(c *call, i int) {
	_, err := c.end(v.ctx)
	v.decide(c, i, err)
}

// decide counts what came of a call.
func (v *validation) decide(c *call, i int, err error) {
	c.observe(v.ctx, err)
	switch of := err.(type) {
	case nil:
		return
	case *webhookutil.ErrCallingWebhook:
		if c.ignore {
			if errors.Is(of.Reason, context.Canceled) {
				klog.Warningf("Context canceled when calling webhook %v", c.name)
			} else {
				klog.Warningf("Failed calling webhook, failing open %v: %v", c.name, of)
				v.failOpen(c, i)
			}
			utilruntime.HandleError(of)
			return
		}
		klog.Warningf("Failed calling webhook, failing closed %v: %v", c.name, err)
		v.refuse(apierrors.NewInternalError(err))
		return
	case *webhookutil.ErrWebhookRejection:
		err = of.Status
	}
	klog.Warningf("rejected by webhook %q: %#v", c.name, err)
	v.refuse(err)
}

// failOpen notes that a webhook's failure was ignored.
func (v *validation) failOpen(c *call, i int) {
	metrics.Metrics.ObserveWebhookFailOpen(v.ctx, c.name, "validating")
	key := fmt.Sprintf("%sround_0_index_%d", validating.ValidatingAuditAnnotationFailedOpenKeyPrefix, i)
	if err := c.attr.Attributes.AddAnnotation(key, c.name); err != nil {
		klog.Warningf("Failed to set admission audit annotation %s to %s for validating webhook %s: %v", key, c.name, c.name, err)
	}
}

func (v *validation) refuse(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.errs = append(v.errs, err)
}

// guard does a step. A panic is the failure of its webhook, as upstream has it, and false.
func (v *validation) guard(c *call, i int, step func() bool) (ok bool) {
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		ok = false
		klog.Errorf("Observed a panic calling webhook %v: %v\n%s", c.name, r, debug.Stack())
		if c.ignore {
			klog.Warningf("Panic calling webhook, failing open %v: %v", c.name, r)
			v.failOpen(c, i)
			return
		}
		name := c.name
		if name == "" {
			name = "unknown"
		}
		v.refuse(apierrors.NewInternalError(fmt.Errorf("ValidatingAdmissionWebhook/%v has panicked: %v", name, r)))
	}()
	return step()
}
