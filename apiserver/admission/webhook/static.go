package webhook

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/quorate/quorate/apiserver/admission/static"
	"github.com/quorate/quorate/apiserver/admission/upstream"
	registration "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/admission/plugin/webhook"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/config/apis/webhookadmission"
	webhookadmissionv1 "k8s.io/apiserver/pkg/admission/plugin/webhook/config/apis/webhookadmission/v1"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/generic"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/manifest/loader"
	manifests "k8s.io/apiserver/pkg/admission/plugin/webhook/manifest/source"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// configs has the configuration of both plugins; fields that nobody knows are errors.
var configs = func() serializer.CodecFactory {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{webhookadmission.AddToScheme, webhookadmissionv1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err) // the types do not change
		}
	}
	return serializer.NewCodecFactory(s, serializer.EnableStrict)
}()

// openGate opens upstream's own feature gate, which is one for the process and which its plugin
// asks as well. Whether a node may use files is decided by its own gate, before this.
var openGate = sync.OnceValue(func() error {
	return utilfeature.DefaultMutableFeatureGate.SetFromMap(map[string]bool{string(features.ManifestBasedAdmissionControlConfig): true})
})

// staticDir reads a plugin's part of the admission configuration. It returns it for upstream's
// plugin to read, and the directory that it names; nil and nothing if there is none. Errors: files
// are not enabled, or the directory cannot be read. What else is wrong upstream's plugin says.
func staticDir(files *static.Files, file io.Reader) (again io.Reader, dir string, err error) {
	if file == nil {
		return nil, "", nil
	}
	raw, err := io.ReadAll(file)
	if err != nil {
		return nil, "", err
	}
	again = bytes.NewReader(raw)
	decoded, err := runtime.Decode(configs.UniversalDecoder(), raw)
	if err != nil {
		return nil, "", err
	}
	cfg, ok := decoded.(*webhookadmission.WebhookAdmission)
	if !ok || cfg.StaticManifestsDir == "" {
		return again, "", nil
	}
	if err := files.CheckDir(cfg.StaticManifestsDir); err != nil {
		return nil, "", err
	}
	if err := openGate(); err != nil {
		return nil, "", fmt.Errorf("feature gates of k8s.io/apiserver: %w", err)
	}
	return again, cfg.StaticManifestsDir, nil
}

// fromFiles are the webhooks of files, as upstream's plugin asks for them. Safe for concurrent use.
type fromFiles struct {
	generic.ReloadableSource
	kinds   *upstream.Kinds
	indexed atomic.Pointer[indexed]
}

// indexed is the index of these webhooks.
type indexed struct {
	webhooks []webhook.WebhookAccessor
	index    *index
}

// RunReloadLoop does nothing: what follows the files is run by the node, which waits for its end.
func (*fromFiles) RunReloadLoop(context.Context) {}

// index are the webhooks that are in force. Nil: there are no files.
func (f *fromFiles) index() *index {
	if f == nil {
		return nil
	}
	now := f.Webhooks()
	if was := f.indexed.Load(); was != nil && len(was.webhooks) == len(now) && (len(now) == 0 || &was.webhooks[0] == &now[0]) {
		return was.index
	}
	hooks := make([]hook, len(now))
	for i, w := range now {
		hooks[i] = hook{w.GetRules(), w.GetMatchPolicy(), w.GetMatchConditions()}
	}
	made := &indexed{now, newIndex(f.kinds, hooks)}
	f.indexed.Store(made) // two at once make the same of the same
	return made.index
}

// rules are the webhooks that are in force.
func (f *fromFiles) rules(resource string) []static.Rule {
	var out []static.Rule
	for _, w := range f.Webhooks() {
		r := static.Rule{Resource: resource, Configuration: w.GetConfigurationName(), Webhook: w.GetName(), FailurePolicy: static.FailurePolicy(w.GetFailurePolicy())}
		if t := w.GetTimeoutSeconds(); t != nil {
			r.TimeoutSeconds = *t
		}
		out = append(out, r)
	}
	return out
}

// reloadable is what upstream's sources of files have.
type reloadable interface {
	generic.ReloadableSource
	LoadInitial() error
}

// follow gives upstream's plugin the webhooks of files, which are read now, and again when they
// change. What cannot be read then leaves what was. It returns nil if there is no directory.
func follow(cfg Config, w *generic.Webhook, resource, dir string, of func(cfg Config, dir string) reloadable) *fromFiles {
	if dir == "" {
		return nil
	}
	from := of(cfg, dir)
	f := &fromFiles{ReloadableSource: from, kinds: cfg.Kinds}
	// Upstream's plugin calls the factory in ValidateInitialization, and starts goroutines that
	// end with this channel.
	ended := make(chan struct{})
	close(ended)
	w.SetDrainedNotification(ended)
	w.SetStaticSourceFactory(func(string) (generic.ReloadableSource, error) {
		if err := from.LoadInitial(); err != nil {
			return nil, err
		}
		cfg.Static.Run(from.RunReloadLoop)
		cfg.Static.List(func() []static.Rule { return f.rules(resource) })
		return f, nil
	})
	return f
}

// mutatingFiles are the configurations of a directory.
func mutatingFiles(cfg Config, dir string) reloadable {
	return manifests.NewMutatingSource(dir, cfg.Static.Server, func(dir string) ([]*registration.MutatingWebhookConfiguration, string, error) {
		return loader.LoadManifests(dir, static.Decoder(), func(obj runtime.Object) ([]*registration.MutatingWebhookConfiguration, error) {
			switch obj := obj.(type) {
			case *registration.MutatingWebhookConfiguration:
				return static.Complete(&cfg.Static, cfg.Kinds, mutatingResource, obj)
			case *registration.MutatingWebhookConfigurationList:
				return static.Complete(&cfg.Static, cfg.Kinds, mutatingResource, static.Pointers(obj.Items)...)
			}
			return nil, fmt.Errorf("unsupported resource type %T", obj)
		})
	})
}

// validatingFiles are the configurations of a directory.
func validatingFiles(cfg Config, dir string) reloadable {
	return manifests.NewValidatingSource(dir, cfg.Static.Server, func(dir string) ([]*registration.ValidatingWebhookConfiguration, string, error) {
		return loader.LoadManifests(dir, static.Decoder(), func(obj runtime.Object) ([]*registration.ValidatingWebhookConfiguration, error) {
			switch obj := obj.(type) {
			case *registration.ValidatingWebhookConfiguration:
				return static.Complete(&cfg.Static, cfg.Kinds, validatingResource, obj)
			case *registration.ValidatingWebhookConfigurationList:
				return static.Complete(&cfg.Static, cfg.Kinds, validatingResource, static.Pointers(obj.Items)...)
			}
			return nil, fmt.Errorf("unsupported resource type %T", obj)
		})
	})
}
