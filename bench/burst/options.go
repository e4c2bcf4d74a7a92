package burst

import (
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/bench/measure"
)

// The users that may send the burst.
const (
	Administrator = "administrator" // the one of the cluster's certificate
	Tenant        = "tenant"        // a ServiceAccount with the role edit in the namespace of the burst
)

// Users are all of them.
var Users = []string{Administrator, Tenant}

// Options say what is sent.
type Options struct {
	Duration time.Duration
	Clients  int      // of each node
	Objects  int      // Deployments
	User     string   // one of Users
	Patches  []string // kinds of patches, see Patches; a client sends one kind
	Timeout  time.Duration
	// Command and Commit are for the report.
	Command, Commit string
}

// DefaultOptions are those of `quorate bench burst`.
func DefaultOptions() Options {
	return Options{Duration: 25 * time.Second, Clients: 300, Objects: 300, User: Administrator, Patches: []string{"apply"}, Timeout: 65 * time.Second}
}

// Validate reports options that cannot be measured.
func (o *Options) Validate() error {
	var b measure.Bounds
	b.Want(o.Duration >= time.Second, "--duration %s: must be at least a second", o.Duration)
	b.Want(o.Clients >= 1 && o.Clients <= 10_000, "--clients %d: must be 1 to 10000", o.Clients)
	b.Want(o.Objects >= 1 && o.Objects <= 10_000, "--objects %d: must be 1 to 10000", o.Objects)
	b.Want(o.Timeout >= time.Second, "--timeout %s: must be at least a second", o.Timeout)
	b.Want(slices.Contains(Users, o.User), "--user %q: must be %s", o.User, strings.Join(Users, " or "))
	b.Want(len(o.Patches) > 0, "--patches: must name a kind")
	for _, name := range o.Patches {
		b.Want(kinds[name].body != nil, "--patches %q: must be of %s", name, strings.Join(PatchKinds(), ", "))
	}
	return b.Err()
}
