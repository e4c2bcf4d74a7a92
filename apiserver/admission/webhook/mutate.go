package webhook

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"

	"github.com/quorate/quorate/apiserver/types/tree"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	registration "k8s.io/api/admissionregistration/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	upstream "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/metrics"
	"k8s.io/apiserver/pkg/admission/plugin/webhook"
	webhookerrors "k8s.io/apiserver/pkg/admission/plugin/webhook/errors"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/generic"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	webhookrequest "k8s.io/apiserver/pkg/admission/plugin/webhook/request"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/klog/v2"
)

// mutatingDispatcher is upstream's, by calls of our own.
type mutatingDispatcher struct {
	cm     *webhookutil.ClientManager
	plugin *generic.Webhook
}

// version is a write in the version that the webhook before wanted.
type version struct {
	made       *upstream.VersionedAttributes
	attr       upstream.Attributes
	interfaces upstream.ObjectInterfaces
}

// VersionedAttribute implements upstream's VersionedAttributeAccessor.
func (v *version) VersionedAttribute(gvk schema.GroupVersionKind) (*upstream.VersionedAttributes, error) {
	var err error
	if v.made == nil {
		v.made, err = upstream.NewVersionedAttributes(v.attr, gvk, v.interfaces)
	} else {
		err = upstream.ConvertVersionedAttributes(v.made, gvk, v.interfaces)
	}
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return v.made, nil
}

// invoked is what is kept of the first round for the second one.
type invoked struct {
	output      tree.Object     // the object after the first round
	reinvocable map[string]bool // webhooks that are asked again if the object changes after them
	again       map[string]bool // webhooks that are to be asked again
}

// changed reports whether the object is another one than after the round before.
func (i *invoked) changed(obj runtime.Object) bool {
	now := contentOf(obj)
	return (now == nil) != (i.output == nil) || !apiequality.Semantic.DeepEqual(i.output, now)
}

// keep keeps the object. What is below its metadata is replaced by those who change it.
func (i *invoked) keep(obj runtime.Object) {
	i.output = maps.Clone(contentOf(obj))
	if meta := tree.As(i.output["metadata"]); meta != nil {
		i.output["metadata"] = maps.Clone(meta)
	}
}

// require has the webhooks asked again that were before.
func (i *invoked) require() {
	if i.again == nil {
		i.again = map[string]bool{}
	}
	maps.Copy(i.again, i.reinvocable)
	clear(i.reinvocable)
}

// contentOf is the tree of an object, nil if there is none.
func contentOf(obj runtime.Object) tree.Object {
	if content, ok := obj.(runtime.Unstructured); ok {
		return content.UnstructuredContent()
	}
	return nil
}

// Dispatch implements upstream's Dispatcher.
func (d *mutatingDispatcher) Dispatch(ctx context.Context, attr upstream.Attributes, o upstream.ObjectInterfaces, hooks []webhook.WebhookAccessor) error {
	round := attr.GetReinvocationContext()
	kept, ok := round.Value(mutating.PluginName).(*invoked)
	if !ok {
		kept = &invoked{}
		round.SetValue(mutating.PluginName, kept)
	}
	if round.IsReinvoke() && kept.changed(attr.GetObject()) {
		// Another plugin has changed the object.
		kept.require()
	}
	defer func() { kept.keep(attr.GetObject()) }()
	v := &version{attr: attr, interfaces: o}
	var shared reviews
	for i, hook := range hooks {
		var checked = attr
		if v.made != nil {
			checked = v.made
		}
		invocation, refused := d.plugin.ShouldCallHook(ctx, hook, checked, o, v)
		if refused != nil {
			return refused
		}
		if invocation == nil {
			continue
		}
		hook, ok := invocation.Webhook.GetMutatingWebhook()
		if !ok {
			return fmt.Errorf("mutating webhook dispatch requires v1.MutatingWebhook, but got %T", hook)
		}
		// A webhook that was not asked in the first round is not asked in the second one.
		if round.IsReinvoke() && !kept.again[invocation.Webhook.GetUID()] {
			continue
		}
		versioned, err := v.VersionedAttribute(invocation.Kind)
		if err != nil {
			return apierrors.NewInternalError(err)
		}
		m := &mutation{
			call: call{
				invocation: invocation, attr: versioned, name: hook.Name, phase: "admit", mutating: true,
				ignore: hook.FailurePolicy != nil && *hook.FailurePolicy == registration.Ignore,
			},
			index: "round_0_index_" + strconv.Itoa(i),
		}
		if round.IsReinvoke() {
			m.index = "round_1_index_" + strconv.Itoa(i)
		}
		changed, err := m.ask(ctx, d.cm, &shared, hook, o)
		m.observe(ctx, err)
		if changed {
			kept.require()
			round.SetShouldReinvoke()
		}
		if hook.ReinvocationPolicy != nil && *hook.ReinvocationPolicy == registration.IfNeededReinvocationPolicy {
			if kept.reinvocable == nil {
				kept.reinvocable = map[string]bool{}
			}
			kept.reinvocable[invocation.Webhook.GetUID()] = true
		}
		if err = m.decide(ctx, err); err != nil {
			return err
		}
	}
	if v.made != nil && v.made.VersionedObject != nil && v.made.Dirty {
		return o.GetObjectConvertor().Convert(v.made.VersionedObject, v.made.Attributes.GetObject(), nil)
	}
	return nil
}

// mutation is a call of a mutating webhook.
type mutation struct {
	call
	index string // of the webhook, in the keys of annotations
}

// decide is the refusal that follows from what came of a call, nil if there is none.
func (m *mutation) decide(ctx context.Context, err error) error {
	switch of := err.(type) {
	case nil:
		return nil
	case *webhookutil.ErrCallingWebhook:
		if !m.ignore {
			klog.Warningf("Failed calling webhook, failing closed %v: %v", m.name, err)
			return apierrors.NewInternalError(err)
		}
		if errors.Is(of.Reason, context.Canceled) {
			klog.Warningf("Context canceled when calling webhook %v", m.name)
		} else {
			klog.Warningf("Failed calling webhook, failing open %v: %v", m.name, of)
			metrics.Metrics.ObserveWebhookFailOpen(ctx, m.name, "admit")
			m.annotate(mutating.MutationAuditAnnotationFailedOpenKeyPrefix, m.name, auditinternal.LevelMetadata)
		}
		utilruntime.HandleError(of)
		if ctx.Err() != nil {
			return apierrors.NewTimeoutError("request did not complete within requested timeout", 0)
		}
		return nil
	case *webhookutil.ErrWebhookRejection:
		return of.Status
	}
	return err
}

// ask asks the webhook, and reports whether it has changed the object.
func (m *mutation) ask(ctx context.Context, cm *webhookutil.ClientManager, shared *reviews, hook *registration.MutatingWebhook, o upstream.ObjectInterfaces) (changed bool, err error) {
	defer func() {
		value, err := utiljson.Marshal(mutating.MutationAuditAnnotation{Configuration: m.invocation.Webhook.GetConfigurationName(), Webhook: m.name, Mutated: changed})
		if err != nil {
			klog.Warningf("unexpected error composing mutating webhook annotation: %v", err)
			return
		}
		m.annotate(mutating.MutationAuditAnnotationPrefix, string(value), auditinternal.LevelMetadata)
	}()
	if err := m.start(cm, shared, hook.SideEffects); err != nil {
		return false, err
	}
	m.send(ctx, hook.TimeoutSeconds)
	answer, err := m.end(ctx)
	if err != nil || len(answer.Patch) == 0 {
		return false, err
	}
	return m.patch(answer, o)
}

// patch applies the patch of an answer, as upstream does.
func (m *mutation) patch(answer *webhookrequest.AdmissionResponse, o upstream.ObjectInterfaces) (changed bool, err error) {
	patch, err := jsonpatch.DecodePatch(answer.Patch)
	if err != nil {
		return false, m.failed(fmt.Errorf("received undecodable patch in webhook response: %w", err), apierrors.NewServiceUnavailable("error decoding patch in webhook response"))
	}
	if len(patch) == 0 {
		return false, nil
	}
	attr := m.attr
	if attr.VersionedObject == nil {
		return false, apierrors.NewInternalError(fmt.Errorf("admission webhook %q attempted to modify the object, which is not supported for this operation", m.name))
	}
	if answer.PatchType != admissionv1.PatchTypeJSONPatch {
		return false, m.failed(fmt.Errorf("unsupported patch type %q", answer.PatchType), webhookerrors.ToStatusErr(m.name, answer.Result))
	}
	raw, err := appendObject(nil, attr.VersionedObject)
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	if raw, err = patch.Apply(raw); err != nil {
		return false, apierrors.NewInternalError(err)
	}
	var into runtime.Object = &unstructured.Unstructured{}
	if _, ok := attr.VersionedObject.(*unstructured.Unstructured); !ok {
		if into, err = o.GetObjectCreater().New(attr.VersionedKind); err != nil {
			return false, apierrors.NewInternalError(err)
		}
	}
	decoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, o.GetObjectCreater(), o.GetObjectTyper(), json.SerializerOptions{})
	made, _, err := decoder.Decode(raw, nil, into)
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	changed = !apiequality.Semantic.DeepEqual(attr.VersionedObject, made)
	value, err := utiljson.Marshal(mutating.PatchAuditAnnotation{
		Configuration: m.invocation.Webhook.GetConfigurationName(), Webhook: m.name, Patch: patch, PatchType: string(admissionv1.PatchTypeJSONPatch),
	})
	if err != nil {
		klog.Warningf("unexpected error composing mutating webhook JSON patch annotation: %v", err)
	} else {
		m.annotate(mutating.PatchAuditAnnotationPrefix, string(value), auditinternal.LevelRequest)
	}
	attr.Dirty = true
	attr.VersionedObject = made
	o.GetObjectDefaulter().Default(attr.VersionedObject)
	return changed, nil
}

// annotate adds a note on the call to the audit event. What a patch has is not logged.
func (m *mutation) annotate(prefix, value string, from auditinternal.Level) {
	if err := m.attr.Attributes.AddAnnotationWithLevel(prefix+m.index, value, from); err != nil {
		klog.Warningf("failed to set annotation %s%s of mutating webhook %s", prefix, m.index, m.name)
	}
}
