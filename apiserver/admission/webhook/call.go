package webhook

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/answers"
	"github.com/quorate/quorate/apiserver/admission/webhook/direct"
	"github.com/quorate/quorate/internal/slots"
	admissionv1 "k8s.io/api/admission/v1"
	admissionv1beta1 "k8s.io/api/admission/v1beta1"
	registration "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	upstream "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/metrics"
	webhookerrors "k8s.io/apiserver/pkg/admission/plugin/webhook/errors"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/generic"
	webhookrequest "k8s.io/apiserver/pkg/admission/plugin/webhook/request"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// noEffects has upstream's words.
const noEffects = "Webhook SideEffects is nil"

// slow is how long a call takes that is logged.
const slow = 500 * time.Millisecond

// call is one webhook that is asked about one write: what upstream's dispatchers do with it in
// their callHook, in steps, so that several can be under way in one goroutine.
type call struct {
	invocation *generic.WebhookInvocation
	attr       *upstream.VersionedAttributes
	name       string
	phase      string // as metrics name it
	mutating   bool
	ignore     bool // failures, by the failure policy

	began    time.Time
	uid      types.UID
	version  schema.GroupVersion // of the review
	review   *review
	sent     direct.Review
	client   *rest.RESTClient
	direct   *direct.Client
	exchange *direct.Exchange
}

// start checks what can be before anything is sent, and makes the review.
func (c *call) start(cm *webhookutil.ClientManager, all *reviews, effects *registration.SideEffectClass) error {
	c.began = time.Now()
	if c.attr.Attributes.IsDryRun() {
		if effects == nil {
			return c.failed(fmt.Errorf("%s", noEffects), apierrors.NewBadRequest(noEffects))
		}
		if *effects != registration.SideEffectClassNone && *effects != registration.SideEffectClassNoneOnDryRun {
			return webhookerrors.NewDryRunUnsupportedErr(c.name)
		}
	}
	for _, version := range c.invocation.Webhook.GetAdmissionReviewVersions() {
		if version == v1.Version || version == v1beta1.Version {
			c.version = schema.GroupVersion{Group: v1.Group, Version: version}
			break
		}
	}
	if c.version.Empty() {
		err := errors.New("webhook does not accept known AdmissionReview versions (v1, v1beta1)")
		return c.failed(fmt.Errorf("could not create admission objects: %w", err), apierrors.NewBadRequest("error creating admission objects"))
	}
	c.uid = uuid.NewUUID()
	var err error
	if c.client, err = c.invocation.Webhook.GetRESTClient(cm); err != nil {
		return c.failed(fmt.Errorf("could not get REST client: %w", err), apierrors.NewInternalError(err))
	}
	if c.review, err = all.of(c.version, c.attr, c.invocation); err != nil {
		return c.uncallable(err)
	}
	// In v1beta1 an answer need not name the review that it is the answer to. There only net/http, which most
	// programs use, decides which bytes of a connection are whose.
	if c.version == v1 {
		c.direct = direct.Of(c.client.Client.Transport)
	}
	return nil
}

// failed is an error of the call, and not the webhook's refusal.
func (c *call) failed(reason error, status *apierrors.StatusError) error {
	return &webhookutil.ErrCallingWebhook{WebhookName: c.name, Reason: reason, Status: status}
}

// uncallable is the error of a webhook that cannot be called.
func (c *call) uncallable(err error) error {
	status, ok := err.(*apierrors.StatusError)
	if !ok {
		status = apierrors.NewServiceUnavailable("error calling webhook")
	}
	return c.failed(fmt.Errorf("failed to call webhook: %w", err), status)
}

// send sends the review if that takes no waiting. It is sent later if it cannot be now.
func (c *call) send(ctx context.Context, timeout *int32) {
	deadline, has := ctx.Deadline()
	if timeout != nil {
		if own := c.began.Add(time.Duration(*timeout) * time.Second); !has || own.Before(deadline) {
			// Only a time of the webhook's own. That of the request ends the call by ctx: a deadline of
			// the same time could pass before ctx has ended, and hide why there is no answer.
			c.sent.Deadline = own
			deadline, has = own, true
		}
	}
	if has {
		// The webhook is told whole seconds, rounded up.
		if left := time.Until(deadline); left > 0 {
			c.sent.Timeout = (left + time.Second - 1).Truncate(time.Second)
		}
	}
	c.sent.Body = c.review.with(string(c.uid))
	if c.direct != nil {
		c.exchange, _ = c.direct.Send(ctx, &c.sent)
	}
}

// arrived reports whether an answer, or an error, is there by a time.
func (c *call) arrived(until time.Time) bool { return c.exchange != nil && c.exchange.Await(until) }

// end waits for the answer, and is what upstream's callHook makes of it: nil if the webhook has
// allowed the write, and an answer if the patch in it is to be applied.
func (c *call) end(ctx context.Context) (*webhookrequest.AdmissionResponse, error) {
	over := slots.Waiting(ctx)
	if c.exchange == nil && c.direct != nil {
		if x, ok := c.direct.Connect(ctx, &c.sent); ok {
			c.exchange = x
		}
	}
	answer, err := c.answer(ctx)
	over()
	if took := time.Since(c.began); took > slow {
		klog.Infof("Calling webhook %v took %v", c.name, took)
	}
	if err != nil {
		return nil, err
	}
	if err := admission.AddAnnotations(c.attr.Attributes, c.name+"/", answer.AuditAnnotations); err != nil {
		klog.Warningf("Failed to set admission audit annotations for webhook %s: %v", c.name, err)
	}
	for _, w := range answer.Warnings {
		warning.AddWarning(ctx, "", w)
	}
	if !answer.Allowed {
		return nil, &webhookutil.ErrWebhookRejection{Status: webhookerrors.ToStatusErr(c.name, answer.Result)}
	}
	return answer, nil
}

// answer waits for the answer. What is not a usual one is read by upstream's client.
func (c *call) answer(ctx context.Context) (*webhookrequest.AdmissionResponse, error) {
	x := c.exchange
	if x == nil {
		if !c.sent.Deadline.IsZero() {
			limited, cancel := context.WithDeadline(ctx, c.sent.Deadline)
			defer cancel()
			ctx = limited
		}
		return c.ask(ctx)
	}
	defer x.Close()
	x.Await(time.Time{})
	if raw, ok := x.Answer(); ok {
		if answers.Small(int64(len(raw)), int64(len(c.sent.Body))) {
			if answer, ok := allowed(raw, c.version, string(c.uid), c.mutating); ok {
				return answer, nil
			}
		}
		x.Forget()
	}
	ctx, cancel := x.Replay()
	defer cancel()
	return c.ask(ctx)
}

// ask has upstream's client send the review, and reads the answer as upstream does.
func (c *call) ask(ctx context.Context) (*webhookrequest.AdmissionResponse, error) {
	r := c.client.Post().SetHeader("Content-Type", runtime.ContentTypeJSON).Body(c.sent.Body)
	if c.sent.Timeout > 0 {
		r.Timeout(c.sent.Timeout)
	}
	var into runtime.Object = &admissionv1.AdmissionReview{}
	if c.version == v1beta1 {
		into = &admissionv1beta1.AdmissionReview{}
	}
	ctx, done := answers.Charged(ctx)
	defer done()
	if c.version == v1beta1 {
		ctx = answers.Alone(ctx)
	}
	if err := r.Do(ctx).Into(into); err != nil {
		return nil, c.uncallable(err)
	}
	answer, err := webhookrequest.VerifyAdmissionResponse(c.uid, c.mutating, into)
	if err != nil {
		return nil, c.failed(fmt.Errorf("received invalid webhook response: %w", err), apierrors.NewServiceUnavailable("error validating webhook response"))
	}
	return answer, nil
}

// observe counts the call, as upstream's dispatchers do. It returns the error if it is one of a call
// that does not count as a refusal.
func (c *call) observe(ctx context.Context, err error) {
	operation, took := string(c.attr.Attributes.GetOperation()), time.Since(c.began)
	m := metrics.Metrics
	switch err := err.(type) {
	case nil:
		m.ObserveWebhook(ctx, c.name, took, false, c.attr.Attributes, c.phase, 200)
	case *webhookutil.ErrCallingWebhook:
		code := int(err.Status.ErrStatus.Code)
		if !c.ignore && !errors.Is(err.Reason, context.Canceled) {
			m.ObserveWebhookRejection(ctx, c.name, c.phase, operation, metrics.WebhookRejectionCallingWebhookError, code)
		}
		m.ObserveWebhook(ctx, c.name, took, !c.ignore, c.attr.Attributes, c.phase, code)
	case *webhookutil.ErrWebhookRejection:
		code := int(err.Status.ErrStatus.Code)
		m.ObserveWebhookRejection(ctx, c.name, c.phase, operation, metrics.WebhookRejectionNoError, code)
		m.ObserveWebhook(ctx, c.name, took, true, c.attr.Attributes, c.phase, code)
	default:
		m.ObserveWebhookRejection(ctx, c.name, c.phase, operation, metrics.WebhookRejectionAPIServerInternalError, 0)
		m.ObserveWebhook(ctx, c.name, took, true, c.attr.Attributes, c.phase, 0)
	}
}
