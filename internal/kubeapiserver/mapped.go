package kubeapiserver

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/apiserver/admission/plugins"
	"github.com/quorate/quorate/apiserver/observe/features"
	"github.com/quorate/quorate/node"
	"github.com/spf13/pflag"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/kubernetes/pkg/features" // all gates of kube-apiserver
)

// mapper carries a flag's value into the options. It returns lines for the log.
type mapper func(o *Options, f *pflag.Flag) (notes []string, err error)

// mappers are the flags that mean something here.
var mappers = map[string]mapper{
	"admission-control-config-file":          text(func(c *node.Config) *string { return &c.AdmissionConfig }),
	"aggregator-reject-forwarding-redirect":  truth(func(c *node.Config) *bool { return &c.RejectRedirects }),
	"anonymous-auth":                         truth(func(c *node.Config) *bool { return &c.AnonymousAuth }),
	"api-audiences":                          list(func(c *node.Config) *[]string { return &c.APIAudiences }),
	"audit-log-maxage":                       number(func(c *node.Config) *int { return &c.AuditMaxAge }),
	"audit-log-maxbackup":                    number(func(c *node.Config) *int { return &c.AuditMaxBackups }),
	"audit-log-maxsize":                      number(func(c *node.Config) *int { return &c.AuditMaxSize }),
	"audit-log-path":                         text(func(c *node.Config) *string { return &c.AuditPath }),
	"audit-policy-file":                      text(func(c *node.Config) *string { return &c.AuditPolicy }),
	"client-ca-file":                         text(func(c *node.Config) *string { return &c.ClientCA }),
	"default-not-ready-toleration-seconds":   seconds(func(c *node.Config) *int64 { return &c.NotReadyTolerationSeconds }),
	"default-unreachable-toleration-seconds": seconds(func(c *node.Config) *int64 { return &c.UnreachableTolerationSeconds }),
	"disable-admission-plugins":              list(func(c *node.Config) *[]string { return &c.AdmissionDisable }),
	"egress-selector-config-file":            text(func(c *node.Config) *string { return &c.EgressSelectorConfig }),
	"enable-admission-plugins":               list(func(c *node.Config) *[]string { return &c.AdmissionEnable }),
	"enable-aggregator-routing":              truth(func(c *node.Config) *bool { return &c.EndpointRouting }),
	"enable-bootstrap-token-auth":            truth(func(c *node.Config) *bool { return &c.BootstrapTokenAuth }),
	"enable-garbage-collector":               truth(func(c *node.Config) *bool { return &c.GarbageCollector }),
	"enable-priority-and-fairness":           truth(func(c *node.Config) *bool { return &c.Fairness }),
	"event-ttl":                              duration(func(c *node.Config) *time.Duration { return &c.EventTTL }),
	"kubelet-certificate-authority":          text(func(c *node.Config) *string { return &c.KubeletCA }),
	"kubelet-client-certificate":             text(func(c *node.Config) *string { return &c.KubeletClientCert }),
	"kubelet-client-key":                     text(func(c *node.Config) *string { return &c.KubeletClientKey }),
	"kubelet-preferred-address-types":        list(func(c *node.Config) *[]string { return &c.KubeletAddressTypes }),
	"kubelet-timeout":                        duration(func(c *node.Config) *time.Duration { return &c.KubeletTimeout }),
	"livez-grace-period":                     duration(func(c *node.Config) *time.Duration { return &c.LivezGrace }),
	"max-mutating-requests-inflight":         number(func(c *node.Config) *int { return &c.MaxWrites }),
	"max-requests-inflight":                  number(func(c *node.Config) *int { return &c.MaxReads }),
	"profiling":                              truth(func(c *node.Config) *bool { return &c.Profiling }),
	"proxy-client-cert-file":                 text(func(c *node.Config) *string { return &c.ProxyClientCert }),
	"proxy-client-key-file":                  text(func(c *node.Config) *string { return &c.ProxyClientKey }),
	"requestheader-client-ca-file":           text(func(c *node.Config) *string { return &c.RequestHeaderCA }),
	"service-account-jwks-uri":               text(func(c *node.Config) *string { return &c.TokenKeysURL }),
	"service-account-key-file":               list(func(c *node.Config) *[]string { return &c.TokenKeys }),
	"service-account-max-token-expiration":   duration(func(c *node.Config) *time.Duration { return &c.MaxTokenExpiry }),
	"service-account-signing-key-file":       text(func(c *node.Config) *string { return &c.TokenSigningKey }),
	"service-cluster-ip-range":               text(func(c *node.Config) *string { return &c.ServiceClusterIPRange }),
	"service-node-port-range":                text(func(c *node.Config) *string { return &c.ServiceNodePortRange }),
	"show-hidden-metrics-for-version":        text(func(c *node.Config) *string { return &c.ShowHidden }),
	"shutdown-delay-duration":                duration(func(c *node.Config) *time.Duration { return &c.ShutdownDelay }),
	"shutdown-send-retry-after":              truth(func(c *node.Config) *bool { return &c.ShutdownRetryAfter }),
	"tls-cert-file":                          text(func(c *node.Config) *string { return &c.ServingCert }),
	"tls-private-key-file":                   text(func(c *node.Config) *string { return &c.ServingKey }),
	"token-auth-file":                        text(func(c *node.Config) *string { return &c.TokenAuth }),
	"runtime-config":                         list(func(c *node.Config) *[]string { return &c.RuntimeConfig }),

	"admission-control":                exactPlugins,
	"advertise-address":                advertise,
	"authorization-mode":               authorization,
	"bind-address":                     bind,
	"cert-dir":                         certDir,
	"external-hostname":                externalHost,
	"feature-gates":                    gates,
	"goaway-chance":                    goaway,
	"http2-max-streams-per-connection": streams,
	"logging-format":                   loggingFormat,
	"secure-port":                      securePort,
	"service-account-issuer":           issuer,

	// They are asked for by name: Level, Version.
	"v":       nothing,
	"version": nothing,
}

func nothing(*Options, *pflag.Flag) ([]string, error) { return nil, nil }

func text(field func(*node.Config) *string) mapper {
	return func(o *Options, f *pflag.Flag) ([]string, error) {
		*field(&o.config) = f.Value.String()
		return nil, nil
	}
}

func truth(field func(*node.Config) *bool) mapper {
	return func(o *Options, f *pflag.Flag) (_ []string, err error) {
		*field(&o.config), err = o.set.GetBool(f.Name)
		return nil, err
	}
}

func number(field func(*node.Config) *int) mapper {
	return func(o *Options, f *pflag.Flag) (_ []string, err error) {
		*field(&o.config), err = o.set.GetInt(f.Name)
		return nil, err
	}
}

func seconds(field func(*node.Config) *int64) mapper {
	return func(o *Options, f *pflag.Flag) (_ []string, err error) {
		*field(&o.config), err = o.set.GetInt64(f.Name)
		return nil, err
	}
}

func duration(field func(*node.Config) *time.Duration) mapper {
	return func(o *Options, f *pflag.Flag) (_ []string, err error) {
		*field(&o.config), err = o.set.GetDuration(f.Name)
		return nil, err
	}
}

func list(field func(*node.Config) *[]string) mapper {
	return func(o *Options, f *pflag.Flag) ([]string, error) {
		*field(&o.config) = elements(f)
		return nil, nil
	}
}

// elements are those of a list, without empty ones: "" is an empty list to kube-apiserver.
func elements(f *pflag.Flag) (out []string) {
	var all []string
	switch v := f.Value.(type) {
	case *pairs:
		all = v.list
	case pflag.SliceValue:
		all = v.GetSlice()
	}
	for _, x := range all {
		if x != "" {
			out = append(out, x)
		}
	}
	return out
}

// exactPlugins switches off all that are not in the list.
func exactPlugins(o *Options, f *pflag.Flag) ([]string, error) {
	if o.set.Changed("enable-admission-plugins") || o.set.Changed("disable-admission-plugins") {
		return nil, fmt.Errorf("and --enable-admission-plugins and --disable-admission-plugins exclude each other")
	}
	o.config.AdmissionEnable = elements(f)
	for _, name := range plugins.Defaults() {
		if !slices.Contains(o.config.AdmissionEnable, name) {
			o.config.AdmissionDisable = append(o.config.AdmissionDisable, name)
		}
	}
	return nil, nil
}

func authorization(o *Options, f *pflag.Flag) (notes []string, err error) {
	o.config.Authorization = nil
	for _, mode := range elements(f) {
		switch mode {
		case "Node", "RBAC", "AlwaysAllow", "AlwaysDeny":
			o.config.Authorization = append(o.config.Authorization, mode)
		case "Webhook", "ABAC":
			return notes, fmt.Errorf("%s: there is no such authorizer: what it allows would be forbidden", mode)
		default:
			return notes, fmt.Errorf("%s: unknown", mode)
		}
	}
	if len(o.config.Authorization) == 0 {
		o.config.Authorization = []string{"AlwaysDeny"}
	}
	return notes, nil
}

func ip(o *Options, f *pflag.Flag) (net.IP, error) { return o.set.GetIP(f.Name) }

func bind(o *Options, f *pflag.Flag) (_ []string, err error) {
	o.bind, err = ip(o, f)
	return nil, err
}

func advertise(o *Options, f *pflag.Flag) ([]string, error) {
	at, err := ip(o, f)
	if err == nil && !at.IsUnspecified() {
		o.config.APIAdvertise = at.String()
	}
	return nil, err
}

func securePort(o *Options, f *pflag.Flag) (_ []string, err error) {
	if o.port, err = o.set.GetInt(f.Name); err == nil && (o.port < 1 || o.port > 65535) {
		err = fmt.Errorf("%d: must be between 1 and 65535", o.port)
	}
	return nil, err
}

func certDir(o *Options, f *pflag.Flag) ([]string, error) {
	o.certDir = f.Value.String()
	return nil, nil
}

func externalHost(o *Options, f *pflag.Flag) ([]string, error) {
	if host := f.Value.String(); host != "" {
		o.config.TLSNames = append(o.config.TLSNames, host)
	}
	return nil, nil
}

// gates takes those that there are. kube-apiserver has two hundred more, of parts that are not here: they are checked as there,
// so that a name that it does not know, a locked gate and gates that contradict each other end the start.
func gates(o *Options, f *pflag.Flag) (notes []string, err error) {
	upstream := utilfeature.DefaultMutableFeatureGate.DeepCopy()
	if err := logsapi.AddFeatureGates(upstream); err != nil {
		return nil, err
	}
	known := features.Names()
	var all []string
	for _, pair := range elements(f) {
		if component, rest, ok := strings.Cut(pair, ":"); ok {
			if component != "kube" {
				return nil, fmt.Errorf("component not registered: %s", component)
			}
			pair = rest
		}
		all = append(all, pair)
		name, _, _ := strings.Cut(pair, "=")
		if slices.Contains(known, name) {
			o.config.FeatureGates = append(o.config.FeatureGates, pair)
			continue
		}
		notes = append(notes, "--feature-gates="+pair+" changes nothing: there is no such switch here")
	}
	if err := upstream.Set(strings.Join(all, ",")); err != nil {
		return nil, err
	}
	return notes, errors.Join(upstream.Validate()...)
}

func goaway(o *Options, f *pflag.Flag) (_ []string, err error) {
	o.config.GoawayChance, err = o.set.GetFloat64(f.Name)
	return nil, err
}

func streams(o *Options, f *pflag.Flag) ([]string, error) {
	n, err := o.set.GetInt(f.Name)
	if n != 0 {
		o.config.MaxStreams = n
	}
	return nil, err
}

func loggingFormat(o *Options, f *pflag.Flag) ([]string, error) {
	if v := f.Value.String(); v != "text" && v != "json" {
		return nil, fmt.Errorf("%q: must be text or json", v)
	}
	return nil, nil
}

func issuer(o *Options, f *pflag.Flag) ([]string, error) {
	all := elements(f)
	if len(all) > 1 {
		return nil, fmt.Errorf("%s: tokens of one issuer log in: those of the others would be refused", strings.Join(all, ", "))
	}
	if len(all) == 1 {
		o.config.TokenIssuer = all[0]
	}
	return nil, nil
}
