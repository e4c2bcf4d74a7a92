package quota

import (
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/apiserver/types/tree"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Pod is what a Pod uses at a moment, beside its place. One that has ended, or whose grace
// period is over, uses nothing.
func Pod(obj tree.Object, now time.Time) Usage {
	u := Usage{Facts: podFacts(obj)}
	if Ended(obj, now) {
		return u
	}
	u.List = make(List, 1, 8)
	u.List[0] = Item{pods, count(1)}
	requests, limits := resourcesOf(obj)
	for i := range requests {
		if name, ok := requestName(requests[i].Name); ok {
			u.set(name, requests[i].Quantity)
		}
	}
	for i := range limits {
		switch name := limits[i].Name; corev1.ResourceName(name) {
		case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
			u.set(limitName(name), limits[i].Quantity)
		}
	}
	return u
}

// Ended reports whether a Pod has stopped running, or should have stopped: one that is being
// deleted when its grace period has passed once more after its end.
func Ended(obj tree.Object, now time.Time) bool {
	switch corev1.PodPhase(tree.Text(tree.As(obj["status"]), "phase")) {
	case corev1.PodSucceeded, corev1.PodFailed:
		return true
	}
	end, ok := Overdue(obj)
	return ok && now.After(end)
}

// Overdue is when a Pod that is being deleted counts as ended. ok is false for others.
func Overdue(obj tree.Object) (at time.Time, ok bool) {
	meta := tree.As(obj["metadata"])
	deletion := tree.Text(meta, "deletionTimestamp")
	if deletion == "" {
		return time.Time{}, false
	}
	grace, ok := tree.Int(meta["deletionGracePeriodSeconds"])
	end, err := time.Parse(time.RFC3339, deletion)
	return end.Add(time.Duration(grace) * time.Second), ok && err == nil
}

// requestName is what a quota calls a request. ok is false for what quotas do not count.
func requestName(name string) (string, bool) {
	switch name {
	case "cpu":
		return requestsCPU, true
	case "memory":
		return "requests.memory", true
	case "ephemeral-storage":
		return "requests.ephemeral-storage", true
	}
	if strings.HasPrefix(name, hugePages) || strings.HasPrefix(name, resourcev1.ResourceDeviceClassPrefix) || extended(name) {
		return requestsPrefix + name, true
	}
	return "", false
}

func limitName(name string) string {
	switch name {
	case "cpu":
		return limitsCPU
	case "memory":
		return "limits.memory"
	case "ephemeral-storage":
		return "limits.ephemeral-storage"
	}
	return limitsPrefix + name
}

// extended reports whether a resource is one of nodes that Kubernetes does not know.
func extended(name string) bool {
	return strings.Contains(name, "/") && !strings.Contains(name, corev1.ResourceDefaultNamespacePrefix) &&
		!strings.HasPrefix(name, requestsPrefix) && len(validation.IsQualifiedName(requestsPrefix+name)) == 0
}

// resourcesOf are what a Pod requests and what it is limited to: its containers together or,
// if that is more, the init containers with the sidecars that run beside each; what is said of
// the Pod as a whole instead; and its overhead.
func resourcesOf(obj tree.Object) (requests, limits List) {
	spec := tree.As(obj["spec"])
	p := pod{status: tree.As(obj["status"])}
	requests, limits = make(List, 0, 4), make(List, 0, 4)
	for _, c := range tree.List(spec["containers"]) {
		r, l := p.container(tree.As(c))
		requests.addAll(r)
		limits.addAll(l)
	}
	p.initContainers(tree.List(spec["initContainers"]), &requests, &limits)
	whole := tree.As(spec["resources"])
	requests.override(whole["requests"])
	limits.override(whole["limits"])
	var overhead List
	overhead.read(spec["overhead"])
	requests.addAll(overhead)
	for i := range overhead {
		if q := limits.find(overhead[i].Name); q != nil && !q.IsZero() {
			q.Add(overhead[i].Quantity)
		}
	}
	return requests, limits
}

// override takes what is said of the Pod as a whole.
func (l *List) override(v any) {
	for name, text := range tree.As(v) {
		if name != "cpu" && name != "memory" && !strings.HasPrefix(name, hugePages) {
			continue
		}
		if q, ok := quantityOf(text); ok {
			l.set(name, q)
		}
	}
}

// pod is a Pod whose containers are added up.
type pod struct {
	status tree.Object
	// infeasible: what the spec asks for was found to be impossible; known once asked.
	infeasible, asked bool
}

// initContainers raises the sums to what is needed while the init containers run, one after
// the other, each beside the sidecars before it.
func (p *pod) initContainers(list []any, requests, limits *List) {
	var besideRequests, besideLimits, mostRequests, mostLimits List
	for _, v := range list {
		c := tree.As(v)
		if tree.Text(c, "restartPolicy") == string(corev1.ContainerRestartPolicyAlways) {
			r, l := p.container(c)
			requests.addAll(r)
			limits.addAll(l)
			besideRequests.addAll(r)
			besideLimits.addAll(l)
			mostRequests.raise(besideRequests)
			mostLimits.raise(besideLimits)
			continue
		}
		r, l := asked(c)
		r.addAll(besideRequests)
		l.addAll(besideLimits)
		mostRequests.raise(r)
		mostLimits.raise(l)
	}
	requests.raise(mostRequests)
	limits.raise(mostLimits)
}

// asked is what the spec of a container says.
func asked(container tree.Object) (requests, limits List) {
	r := tree.As(container["resources"])
	requests.read(r["requests"])
	limits.read(r["limits"])
	return requests, limits
}

// container is what a container asks for or has, whichever is more: it has what the status
// says while it is resized.
func (p *pod) container(c tree.Object) (requests, limits List) {
	requests, limits = asked(c)
	status := p.statusOf(tree.Text(c, "name"))
	has := tree.As(status["resources"])
	if has == nil {
		return requests, limits
	}
	if p.resizeInfeasible() {
		requests, limits = nil, nil
	}
	var hasRequests, allocated, hasLimits List
	hasRequests.read(has["requests"])
	allocated.read(status["allocatedResources"])
	hasLimits.read(has["limits"])
	requests.raise(hasRequests)
	requests.raise(allocated)
	limits.raise(hasLimits)
	return requests, limits
}

// statusOf is the status of a container, in whichever list it is. Of several with one name the last one counts, as upstream.
func (p *pod) statusOf(name string) tree.Object {
	for _, list := range [...]string{"initContainerStatuses", "containerStatuses"} {
		for _, v := range slices.Backward(tree.List(p.status[list])) {
			if s := tree.As(v); tree.Text(s, "name") == name {
				return s
			}
		}
	}
	return nil
}

func (p *pod) resizeInfeasible() bool {
	if p.asked {
		return p.infeasible
	}
	p.asked = true
	for _, v := range tree.List(p.status["conditions"]) {
		if c := tree.As(v); tree.Text(c, "type") == string(corev1.PodResizePending) {
			p.infeasible = tree.Text(c, "reason") == corev1.PodReasonInfeasible
			break
		}
	}
	return p.infeasible
}
