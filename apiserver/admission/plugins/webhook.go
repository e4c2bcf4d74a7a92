package plugins

import (
	"io"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/webhook"
)

func mutatingWebhook(e *env, file io.Reader) (admission.Plugin, error) {
	return webhook.NewMutating(e.webhooks(), file)
}

func validatingWebhook(e *env, file io.Reader) (admission.Plugin, error) {
	return webhook.NewValidating(e.webhooks(), file)
}

func (e *env) webhooks() webhook.Config {
	return webhook.Config{
		State: e.state, Kinds: e.kinds, Static: e.Static, Namespaces: e.namespaces, Resolve: e.Resolve, Dial: e.Dial, DialURL: e.DialURL, Authorizer: e.Authorizer, Log: e.Log,
		Suspended: e.Suspensions.Suspended, Suspensions: func() int { return len(e.Suspensions.Stored()) },
	}
}
