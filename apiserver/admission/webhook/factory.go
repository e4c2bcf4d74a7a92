package webhook

import (
	"errors"

	registration "k8s.io/api/admissionregistration/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/admissionregistration"
	registrationinformers "k8s.io/client-go/informers/admissionregistration/v1"
	"k8s.io/client-go/informers/core"
	coreinformers "k8s.io/client-go/informers/core/v1"
	registrationlisters "k8s.io/client-go/listers/admissionregistration/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// errNotAsked is for what upstream's plugin does not do.
var errNotAsked = errors.New("not asked for")

// factory is what upstream's plugin takes for informers. The interfaces that are embedded are nil:
// what they have more is not asked for.
type factory struct {
	informers.SharedInformerFactory
	mutating   *source[*registration.MutatingWebhookConfiguration]
	validating *source[*registration.ValidatingWebhookConfiguration]
	namespaces corelisters.NamespaceLister
}

func (f *factory) Admissionregistration() admissionregistration.Interface {
	return registrations{factory: f}
}

func (f *factory) Core() core.Interface { return cores{factory: f} }

type registrations struct {
	admissionregistration.Interface
	factory *factory
}

func (r registrations) V1() registrationinformers.Interface {
	return registrationsV1{factory: r.factory}
}

type registrationsV1 struct {
	registrationinformers.Interface
	factory *factory
}

func (r registrationsV1) MutatingWebhookConfigurations() registrationinformers.MutatingWebhookConfigurationInformer {
	return mutatingInformer{r.factory.mutating}
}

func (r registrationsV1) ValidatingWebhookConfigurations() registrationinformers.ValidatingWebhookConfigurationInformer {
	return validatingInformer{r.factory.validating}
}

type mutatingInformer struct {
	source *source[*registration.MutatingWebhookConfiguration]
}

func (m mutatingInformer) Informer() cache.SharedIndexInformer { return informer{handlers: m.source} }

func (m mutatingInformer) Lister() registrationlisters.MutatingWebhookConfigurationLister {
	return mutatingLister{source: m.source}
}

type mutatingLister struct {
	*source[*registration.MutatingWebhookConfiguration]
	registrationlisters.MutatingWebhookConfigurationListerExpansion
}

func (mutatingLister) Get(string) (*registration.MutatingWebhookConfiguration, error) {
	return nil, errNotAsked
}

type validatingInformer struct {
	source *source[*registration.ValidatingWebhookConfiguration]
}

func (v validatingInformer) Informer() cache.SharedIndexInformer {
	return informer{handlers: v.source}
}

func (v validatingInformer) Lister() registrationlisters.ValidatingWebhookConfigurationLister {
	return validatingLister{source: v.source}
}

type validatingLister struct {
	*source[*registration.ValidatingWebhookConfiguration]
	registrationlisters.ValidatingWebhookConfigurationListerExpansion
}

func (validatingLister) Get(string) (*registration.ValidatingWebhookConfiguration, error) {
	return nil, errNotAsked
}

// informer keeps handlers.
type informer struct {
	cache.SharedIndexInformer
	handlers interface {
		AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error)
	}
}

func (i informer) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return i.handlers.AddEventHandler(h)
}

func (informer) HasSynced() bool { return true }

type cores struct {
	core.Interface
	factory *factory
}

func (c cores) V1() coreinformers.Interface { return coresV1{factory: c.factory} }

type coresV1 struct {
	coreinformers.Interface
	factory *factory
}

func (c coresV1) Namespaces() coreinformers.NamespaceInformer {
	return namespaceInformer{c.factory.namespaces}
}

type namespaceInformer struct{ lister corelisters.NamespaceLister }

func (namespaceInformer) Informer() cache.SharedIndexInformer   { return informer{} }
func (n namespaceInformer) Lister() corelisters.NamespaceLister { return n.lister }
