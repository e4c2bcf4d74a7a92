package builtin

import (
	"github.com/quorate/quorate/apiserver/types/tree"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// preparePod gives a new pod its phase, and its quality of service, once plugins have set its resources. A
// status that does not name it leaves it as it is.
func preparePod(obj, old tree.Object) {
	dropFromPod(obj, old)
	if old == nil {
		obj["status"] = tree.Object{"phase": string(corev1.PodPending)}
		gatePod(obj)
		mergeLabelKeys(obj)
	}
	class := tree.Text(tree.As(old["status"]), "qosClass")
	if old == nil {
		class = string(qosClass(tree.As(obj["spec"])))
	}
	status := tree.As(obj["status"])
	if class == "" || tree.Text(status, "qosClass") != "" && old != nil {
		return
	}
	status = tree.Clone(status)
	status["qosClass"] = class
	obj["status"] = status
}

// qosClass is the quality of service that the requests and limits of a pod for CPU and memory
// give it. The pod's own count instead of its containers', if it has any.
func qosClass(spec tree.Object) corev1.PodQOSClass {
	var all []tree.Object
	if own, ok := spec["resources"]; ok {
		all = append(all, tree.As(own))
	} else {
		for _, list := range [...]string{"containers", "initContainers"} {
			for _, c := range tree.List(spec[list]) {
				all = append(all, tree.As(tree.As(c)["resources"]))
			}
		}
	}
	requests, limits := map[string]resource.Quantity{}, map[string]resource.Quantity{}
	guaranteed := true
	for _, r := range all {
		addCompute(requests, r["requests"])
		guaranteed = addCompute(limits, r["limits"]) == 2 && guaranteed
	}
	if len(requests) == 0 && len(limits) == 0 {
		return corev1.PodQOSBestEffort
	}
	for name, request := range requests {
		limit, ok := limits[name]
		guaranteed = guaranteed && ok && limit.Cmp(request) == 0
	}
	if guaranteed && len(requests) == len(limits) {
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}

// addCompute adds the CPU and memory of a list that are more than zero, and says how many of
// them there are.
func addCompute(sums map[string]resource.Quantity, list any) (n int) {
	for _, name := range [...]string{"cpu", "memory"} {
		q, err := tree.ParseQuantity(tree.Scalar(tree.As(list)[name]))
		if err != nil || q.Sign() <= 0 {
			continue
		}
		sum := sums[name]
		sum.Add(q)
		sums[name] = sum
		n++
	}
	return n
}

// gatePod says of a new pod with scheduling gates that it is not scheduled because of them.
func gatePod(obj tree.Object) {
	if len(tree.List(tree.Field(obj, "spec", "schedulingGates"))) == 0 {
		return
	}
	status := tree.Clone(obj["status"])
	status["conditions"] = []any{tree.Object{
		"type": string(corev1.PodScheduled), "status": string(corev1.ConditionFalse), "reason": corev1.PodReasonSchedulingGated,
		"message": "Scheduling is blocked due to non-empty scheduling gates", "lastProbeTime": nil,
		"lastTransitionTime": tree.Text(tree.As(obj["metadata"]), "creationTimestamp"),
	}}
	obj["status"] = status
}
