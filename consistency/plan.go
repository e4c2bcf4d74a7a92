package consistency

import (
	"fmt"
	"strconv"
	"time"

	"github.com/quorate/quorate/proto"
)

// Values of Params.Match.
const (
	MatchExact        = "Exact"
	MatchNotOlderThan = "NotOlderThan"
)

// Params are a read's query parameters, as the client sent them. Which of them
// count depends on the verb; the others are ignored, as upstream does.
type Params struct {
	ResourceVersion string
	Match           string // resourceVersionMatch
	Limit           int64  // zero and less mean none
	Continue        string
	// SendInitialEvents is nil if the parameter is absent.
	SendInitialEvents *bool
	AllowBookmarks    bool
	// SingleName says that a list is narrowed to one object by metadata.name.
	// Such a list has one page, whatever its limit. With a continue token, a list
	// goes on as any other.
	SingleName bool
	// MaxStaleness is our extension, a Go duration; empty if it is absent. Only
	// with ResourceVersion "0".
	MaxStaleness string
}

// Mode says how fresh the state must be that a request is answered from.
type Mode int

const (
	// MostRecent is linearizable: the answer includes every write that was
	// acknowledged by any node before the request arrived.
	MostRecent Mode = iota + 1
	// Any is whatever this node has now.
	Any
	// NotOlderThan is any state at or after Plan.Revision.
	NotOlderThan
	// Exact is the state as it was at Plan.Revision.
	Exact
)

func (m Mode) String() string {
	switch m {
	case MostRecent:
		return "MostRecent"
	case Any:
		return "Any"
	case NotOlderThan:
		return "NotOlderThan"
	case Exact:
		return "Exact"
	default:
		return "Mode(" + strconv.Itoa(int(m)) + ")"
	}
}

// Plan is what a request's parameters ask for. Reader.Await carries it out.
type Plan struct {
	Mode Mode
	// Revision is set for NotOlderThan and Exact.
	Revision proto.Revision
	// Limit is the size of a list's page; zero means no bound.
	Limit int64
	// Token is where a list goes on, or nil for its first page.
	Token *Token
	// InitialEvents says that a watch begins with an ADDED event for each object
	// of the state at the awaited revision.
	InitialEvents bool
	// EndBookmark says that a bookmark marks the end of the initial events.
	EndBookmark bool
	// StartAfter is where a watch begins: its events are those above it. Zero
	// means above the awaited revision.
	StartAfter proto.Revision
	// MaxStaleness bounds Any; zero means no bound.
	MaxStaleness time.Duration
}

// PlanGet plans a get. Errors: *Refusal.
func PlanGet(p Params) (Plan, error) {
	rv, err := parseRV(p.ResourceVersion)
	if err != nil {
		return Plan{}, err
	}
	plan := rv.plan()
	return plan, plan.boundStaleness(p)
}

// PlanList plans a list. Errors: *Refusal.
func PlanList(p Params) (Plan, error) {
	if err := checkListMatch(p); err != nil {
		return Plan{}, err
	}
	if p.Continue != "" {
		return planContinue(p)
	}
	rv, err := parseRV(p.ResourceVersion)
	if err != nil {
		return Plan{}, err
	}
	plan := rv.plan()
	if p.Limit > 0 && !p.SingleName && plan.Mode != Any {
		plan.Limit = p.Limit
	}
	switch {
	case plan.Mode != NotOlderThan:
	case p.Match == MatchExact, p.Match == "" && plan.Limit > 0:
		plan.Mode = Exact
	}
	return plan, plan.boundStaleness(p)
}

func planContinue(p Params) (Plan, error) {
	token, err := DecodeToken(p.Continue)
	if err != nil {
		return Plan{}, err
	}
	if p.ResourceVersion != "" && !isZero(p.ResourceVersion) {
		return Plan{}, badRequest("specifying resource version is not allowed when using continue")
	}
	plan := Plan{Mode: Exact, Revision: token.Revision, Limit: max(p.Limit, 0), Token: &token}
	if token.Latest {
		plan.Mode = MostRecent
	}
	return plan, plan.boundStaleness(p)
}

// PlanWatch plans a watch. Errors: *Refusal.
func PlanWatch(p Params) (Plan, error) {
	if err := checkWatchMatch(p); err != nil {
		return Plan{}, err
	}
	rv, err := parseRV(p.ResourceVersion)
	if err != nil {
		return Plan{}, err
	}
	plan := rv.plan()
	if p.SendInitialEvents != nil {
		plan.InitialEvents = *p.SendInitialEvents
	} else {
		plan.InitialEvents = plan.Mode != NotOlderThan
	}
	plan.EndBookmark = plan.InitialEvents && p.AllowBookmarks
	if !plan.InitialEvents {
		plan.StartAfter = plan.Revision
	}
	return plan, plan.boundStaleness(p)
}

// requested is a parsed resourceVersion.
type requested struct {
	set bool
	rev proto.Revision
}

func (r requested) plan() Plan {
	switch {
	case !r.set:
		return Plan{Mode: MostRecent}
	case r.rev == 0:
		return Plan{Mode: Any}
	default:
		return Plan{Mode: NotOlderThan, Revision: r.rev}
	}
}

// isZero reports whether the text asks for Any. A number that cannot be parsed
// does not.
func isZero(s string) bool {
	n, err := strconv.ParseUint(s, 10, 64)
	return err == nil && n == 0
}

func parseRV(s string) (requested, error) {
	if s == "" {
		return requested{}, nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		f := FieldError{Field: "resourceVersion", Type: TypeInvalid, Message: fmt.Sprintf("Invalid value: %q: %v", s, err)}
		return requested{}, &Refusal{Kind: BadRequest, Message: "invalid resource version: " + f.text()}
	}
	return requested{set: true, rev: proto.Revision(n)}, nil
}

// boundStaleness reads maxStaleness into the plan.
func (p *Plan) boundStaleness(from Params) error {
	if from.MaxStaleness == "" {
		return nil
	}
	d, err := time.ParseDuration(from.MaxStaleness)
	if err != nil || d <= 0 {
		return badRequest(fmt.Sprintf("invalid maxStaleness %q: must be a positive duration such as 500ms", from.MaxStaleness))
	}
	if p.Mode != Any {
		return badRequest("maxStaleness is only allowed with resourceVersion=0")
	}
	p.MaxStaleness = d
	return nil
}
