// The processes of cert-manager that have to do with webhooks: "webhook" and
// "cainjector", with their own flags. Their commands are modules of their own
// that no module proxy has; what they call is in cert-manager's module, and this
// program calls the same. It is built within a copy of that module, because the
// webhook's package is internal.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kscheme "k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/cert-manager/cert-manager/internal/webhook"
	cmscheme "github.com/cert-manager/cert-manager/pkg/client/clientset/versioned/scheme"
	"github.com/cert-manager/cert-manager/pkg/controller/cainjector"
	"github.com/cert-manager/cert-manager/pkg/logs"
	"github.com/cert-manager/cert-manager/pkg/util"
	"github.com/cert-manager/cert-manager/pkg/webhook/options"
)

func main() {
	logs.InitLogs()
	ctrl.SetLogger(logs.Log)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	run := map[string]func(context.Context, []string) error{"webhook": runWebhook, "cainjector": runInjector}[os.Args[1]]
	if err := run(ctx, os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func runWebhook(ctx context.Context, args []string) error {
	config, err := options.NewWebhookConfiguration()
	if err != nil {
		return err
	}
	flags := pflag.NewFlagSet("webhook", pflag.ContinueOnError)
	options.NewWebhookFlags().AddFlags(flags)
	options.AddConfigFlags(flags, config)
	if err := flags.Parse(args); err != nil {
		return err
	}
	s, err := webhook.NewCertManagerWebhookServer(logs.Log, *config)
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// runInjector is cainjector without its election and its metrics. The kubeconfig is
// that of the environment variable KUBECONFIG.
func runInjector(ctx context.Context, _ []string) error {
	scheme := runtime.NewScheme()
	err := errors.Join(kscheme.AddToScheme(scheme), cmscheme.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme), apiregistrationv1.AddToScheme(scheme))
	if err != nil {
		return err
	}
	manager, err := ctrl.NewManager(util.RestConfigWithUserAgent(ctrl.GetConfigOrDie(), "cainjector"), ctrl.Options{
		Scheme: scheme, Metrics: server.Options{BindAddress: "0"},
		Cache:  cache.Options{ReaderFailOnMissingInformer: true},
		Client: client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
	})
	if err != nil {
		return err
	}
	if err := cainjector.RegisterAllInjectors(ctx, manager, cainjector.SetupOptions{
		EnableCertificatesDataSource: true,
		EnabledReconcilersFor: map[string]bool{
			cainjector.MutatingWebhookConfigurationName: true, cainjector.ValidatingWebhookConfigurationName: true,
			cainjector.CustomResourceDefinitionName: true,
		},
	}); err != nil {
		return err
	}
	return manager.Start(ctx)
}
