package kubeapiserver

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"

	"github.com/quorate/quorate/apiserver/backends/kubelet"
	"github.com/quorate/quorate/apiserver/controllers"
	"github.com/quorate/quorate/node"
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
)

// Options are what the server is told. The zero value is not ready to use: [New].
type Options struct {
	// Nodes is how many there are, DataDir where the data is kept ("": as DESIGN.md says). They are
	// the flags --quorate-nodes and --quorate-data-dir.
	Nodes   int
	DataDir string
	// Controllers are those that run beside the API, as in node.Config, or "none": those alone that
	// kube-apiserver has itself. They are the flag --quorate-controllers.
	Controllers []string

	flags []line
	set   *pflag.FlagSet

	// What follows from the flags.
	config  node.Config
	bind    net.IP
	port    int
	certDir string
}

// ofKubeAPIServer are the controllers that kube-apiserver has itself; that Events end is etcd's doing there.
var ofKubeAPIServer = []string{string(controllers.EventTTLController), string(controllers.KubernetesController)}

// New returns options with all flags, as if none was given.
func New() *Options {
	all, err := parseFlags(flagsText)
	o := &Options{flags: all, set: pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)}
	o.set.SetNormalizeFunc(cliflag.WordSepNormalizeFunc) // --etcd_servers is --etcd-servers, as upstream
	for _, f := range all {
		if f.name == "help" { // cobra's
			continue
		}
		err = errors.Join(err, f.define(o.set))
	}
	if err != nil {
		panic(err) // flags.txt is part of the program
	}
	o.set.IntVar(&o.Nodes, "quorate-nodes", 1, "how many nodes the server has, in this process: 1, 3 or 5")
	o.set.StringVar(&o.DataDir, "quorate-data-dir", "", "where the data is kept; by default it ends with the server, unless a stub of 'quorate etcd-stub' keeps it")
	o.set.StringSliceVar(&o.Controllers, "quorate-controllers", []string{"*"}, "which controllers run beside the API: * is all, foo enables foo, -foo disables it; none: only those that kube-apiserver has itself")
	return o
}

// Flags are those of kube-apiserver, and --quorate-nodes, --quorate-data-dir and --quorate-controllers.
func (o *Options) Flags() *pflag.FlagSet { return o.set }

// Version is what --version asks for, "" if it is not there: to print the version ("true", "raw"), or what
// the server is to say.
func (o *Options) Version() string { return o.set.Lookup("version").Value.String() }

// Level is the least level that is logged; JSON says in which form.
func (o *Options) Level() slog.Level {
	if l, ok := o.set.Lookup("v").Value.(*level); ok && *l >= 4 {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// JSON reports whether the log is to be JSON.
func (o *Options) JSON() bool { return o.set.Lookup("logging-format").Value.String() == "json" }

// nodeRestriction is on by default in Quorate, and off in kube-apiserver.
const nodeRestriction = "NodeRestriction"

// complete makes the settings of a node from the flags, and returns what is to be logged of those that change nothing.
// The error has a line for each that is refused.
func (o *Options) complete() (notes []string, err error) {
	o.config = node.Defaults()
	c := &o.config
	// kube-apiserver's defaults, where they are others.
	c.Authorization = []string{"AlwaysAllow"}
	c.KubeletAddressTypes = kubelet.DefaultAddressTypes
	c.AuditMaxBackups = 100
	o.bind, o.port = net.IPv4zero, 6443
	var errs []error
	for _, f := range o.flags {
		given := o.set.Lookup(f.name)
		if given == nil || !given.Changed {
			continue
		}
		switch f.fate {
		case refused:
			if v := value(given); !f.isHarmless(v) {
				errs = append(errs, fmt.Errorf("--%s=%s: %s", f.name, v, f.text))
			}
		case ignored:
			notes = append(notes, fmt.Sprintf("--%s changes nothing: %s", f.name, f.text))
		case mapped:
			more, err := mappers[f.name](o, given)
			notes = append(notes, more...)
			if err != nil {
				errs = append(errs, fmt.Errorf("--%s: %w", f.name, err))
			}
		}
	}
	if !slices.Contains(c.AdmissionEnable, nodeRestriction) && !slices.Contains(c.AdmissionDisable, nodeRestriction) {
		c.AdmissionDisable = append(c.AdmissionDisable, nodeRestriction)
	}
	if o.Nodes != 1 && o.Nodes != 3 && o.Nodes != 5 {
		errs = append(errs, fmt.Errorf("--quorate-nodes: %d: must be 1, 3 or 5", o.Nodes))
	}
	c.Controllers = o.Controllers
	if slices.Equal(o.Controllers, []string{"none"}) {
		c.Controllers = ofKubeAPIServer
	}
	if _, err := controllers.Select(c.Controllers); err != nil {
		errs = append(errs, fmt.Errorf("--quorate-controllers: %w", err))
	}
	if (c.AuditPath == "") != (c.AuditPolicy == "") {
		notes = append(notes, "no audit events are written: --audit-log-path and --audit-policy-file need each other")
		c.AuditPath, c.AuditPolicy = "", ""
	}
	c.APIListen = net.JoinHostPort(o.bind.String(), strconv.Itoa(o.port))
	if c.APIAdvertise == "" {
		at := o.bind
		if at.IsUnspecified() {
			at = hostIP()
		}
		c.APIAdvertise = net.JoinHostPort(at.String(), strconv.Itoa(o.port))
	} else {
		c.APIAdvertise = net.JoinHostPort(c.APIAdvertise, strconv.Itoa(o.port))
	}
	return notes, errors.Join(errs...)
}
