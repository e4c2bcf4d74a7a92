package egress

import (
	"context"
	"net"
	"time"
)

// DialFunc connects to an address, host:port. It ends when ctx does; the connection stays.
type DialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// Purpose is what a connection is for.
type Purpose int

const (
	// Cluster is for what runs in the cluster: kubelets, Services, Pods, and what these serve.
	Cluster Purpose = iota
	// ControlPlane is for what a URL names.
	ControlPlane
	purposes
)

// names are the purposes as files have them.
var names = [purposes]string{Cluster: "cluster", ControlPlane: "controlplane"}

// Dialers are a server's. They are immutable, and safe for concurrent use.
type Dialers struct {
	dial [purposes]DialFunc
	file [purposes]bool
	// elsewhere: the file names a proxy, so another machine dials.
	elsewhere [purposes]bool
}

// Config is what Dialers are made of.
type Config struct {
	// File is an EgressSelectorConfiguration; empty: none.
	File string
	// Direct dials what the file sends nowhere else. Default: the network of this host.
	Direct DialFunc
	// Cluster dials what is for the cluster, unless the file says how. Default: Direct.
	Cluster DialFunc
}

// dialTime bounds every dial, as upstream's default does; shorter contexts win.
const dialTime = 30 * time.Second

// New returns Dialers. Errors: the file cannot be read or used; they name it and its fields.
func New(cfg Config) (*Dialers, error) {
	if cfg.Direct == nil {
		cfg.Direct = Direct
	}
	if cfg.Cluster == nil {
		cfg.Cluster = cfg.Direct
	}
	d := &Dialers{}
	d.dial[Cluster], d.dial[ControlPlane] = cfg.Cluster, cfg.Direct
	all, err := read(cfg.File)
	if err != nil {
		return nil, err
	}
	for of, dial := range all {
		if d.elsewhere[of] = dial != nil; !d.elsewhere[of] { // Direct
			dial = cfg.Direct
		}
		d.dial[of], d.file[of] = dial, true
	}
	return d, nil
}

// Dial returns the dialer for a purpose. It is never nil.
func (d *Dialers) Dial(p Purpose) DialFunc { return d.dial[p] }

// Configured reports whether a file says how connections for a purpose are made.
func (d *Dialers) Configured(p Purpose) bool { return d.file[p] }

// Or is Dial for callers that dial directly in a way of their own, such as one that refuses addresses:
// direct is used where the file says Direct, and where it says nothing.
func (d *Dialers) Or(p Purpose, direct DialFunc) DialFunc {
	if d.elsewhere[p] {
		return d.dial[p]
	}
	return direct
}

// Direct dials in the network of this host.
func Direct(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTime, KeepAlive: dialTime}
	return d.DialContext(ctx, network, address)
}
