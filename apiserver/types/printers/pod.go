package printers

import (
	"fmt"
	"strconv"
	"time"

	"github.com/quorate/quorate/apiserver/types/tree"
)

// podSummary is what the state of a pod's containers comes down to.
type podSummary struct {
	ready, status string
	restarts      any
}

// podCount adds up containers while they are looked at.
type podCount struct {
	total, ready int
	restarts     int64
	last         time.Time // of the restarts
	reason       string
}

func summarize(v any) podSummary {
	n := podCount{total: len(items(v, "spec", "containers"))}
	phase := tree.Scalar(get(v, "status", "phase"))
	n.reason = phase
	if r := tree.Scalar(get(v, "status", "reason")); r != "" {
		n.reason = r
	}
	conditions := items(v, "status", "conditions")
	if get(condition(conditions, "PodScheduled"), "reason") == "SchedulingGated" {
		n.reason = "SchedulingGated"
	}
	sidecars, initializing := n.initContainers(v)
	if !initializing || conditionTrue(conditions, "Initialized") {
		n.restarts, n.last = sidecars.restarts, sidecars.last
		n.containers(v, conditionTrue(conditions, "Ready"))
	}
	if get(v, "metadata", "deletionTimestamp") != nil {
		switch {
		case get(v, "status", "reason") == "NodeLost":
			n.reason = "Unknown"
		case phase != "Succeeded" && phase != "Failed":
			n.reason = "Terminating"
		}
	}
	s := podSummary{ready: fmt.Sprintf("%d/%d", n.ready, n.total), status: n.reason, restarts: strconv.FormatInt(n.restarts, 10)}
	if n.restarts != 0 && !n.last.IsZero() {
		s.restarts = Ageing{Before: strconv.FormatInt(n.restarts, 10) + " (", Since: n.last, After: " ago)"}
	}
	return s
}

// initContainers looks for the first init container that is not done. sidecars
// counts the restarts of those that stay.
func (n *podCount) initContainers(v any) (sidecars podCount, initializing bool) {
	specs := items(v, "spec", "initContainers")
	restartable := map[any]bool{}
	for _, c := range specs {
		if get(c, "restartPolicy") == "Always" {
			restartable[get(c, "name")] = true
			n.total++
		}
	}
	for i, c := range items(v, "status", "initContainerStatuses") {
		n.count(c)
		sidecar := restartable[get(c, "name")]
		if sidecar {
			sidecars.count(c)
		}
		terminated := get(c, "state", "terminated")
		waiting := tree.Scalar(get(c, "state", "waiting", "reason"))
		switch {
		case terminated != nil && integer(get(terminated, "exitCode")) == 0:
			continue
		case sidecar && get(c, "started") == true:
			if get(c, "ready") == true {
				n.ready++
			}
			continue
		case terminated != nil:
			n.reason = "Init:" + endOf(terminated)
		case waiting != "" && waiting != "PodInitializing":
			n.reason = "Init:" + waiting
		default:
			n.reason = fmt.Sprintf("Init:%d/%d", i, len(specs))
		}
		return sidecars, true
	}
	return sidecars, false
}

func (n *podCount) containers(v any, ready bool) {
	list := items(v, "status", "containerStatuses")
	running := false
	for i := len(list) - 1; i >= 0; i-- {
		c := list[i]
		n.count(c)
		terminated := get(c, "state", "terminated")
		switch waiting := tree.Scalar(get(c, "state", "waiting", "reason")); {
		case waiting != "":
			n.reason = waiting
		case terminated != nil:
			n.reason = endOf(terminated)
		case get(c, "ready") == true && get(c, "state", "running") != nil:
			running = true
			n.ready++
		}
	}
	// Some containers are done, but not all.
	if n.reason == "Completed" && running {
		n.reason = "NotReady"
		if ready {
			n.reason = "Running"
		}
	}
}

// count adds a container's restarts.
func (n *podCount) count(c any) {
	n.restarts += integer(get(c, "restartCount"))
	if t, ok := timestamp(get(c, "lastState", "terminated", "finishedAt")); ok && n.last.Before(t) {
		n.last = t
	}
}

// endOf says why a container ended.
func endOf(terminated any) string {
	if reason := tree.Scalar(get(terminated, "reason")); reason != "" {
		return reason
	}
	if signal := integer(get(terminated, "signal")); signal != 0 {
		return "Signal:" + strconv.FormatInt(signal, 10)
	}
	return "ExitCode:" + strconv.FormatInt(integer(get(terminated, "exitCode")), 10)
}

func podIP(v any) any {
	if ips := items(v, "podIPs"); len(ips) > 0 {
		return textOrNone(get(ips[0], "ip"))
	}
	return textOrNone(get(v, "podIP"))
}

func readinessGates(v any) any {
	gates := items(v, "spec", "readinessGates")
	if len(gates) == 0 {
		return none
	}
	passed := 0
	for _, g := range gates {
		if conditionTrue(items(v, "status", "conditions"), tree.Scalar(get(g, "conditionType"))) {
			passed++
		}
	}
	return fmt.Sprintf("%d/%d", passed, len(gates))
}
