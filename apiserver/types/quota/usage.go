package quota

import (
	"time"

	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/proto"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kinds that use more than a place among the objects of their kind.
var (
	Pods           = schema.GroupResource{Resource: "pods"}
	Services       = schema.GroupResource{Resource: "services"}
	VolumeClaims   = schema.GroupResource{Resource: "persistentvolumeclaims"}
	ResourceClaims = schema.GroupResource{Group: resourcev1.GroupName, Resource: "resourceclaims"}
)

// Usage is what an object uses, and what scopes ask of it.
type Usage struct {
	List
	// Facts are sorted by name, and values of the same name by value. They are shared and
	// must not be changed.
	Facts []*proto.Attribute
}

// Of is what an object of a resource uses at a moment, but for its place among the objects of
// its kind. ok is false for resources that use nothing else.
func Of(gr schema.GroupResource, obj tree.Object, now time.Time) (u Usage, ok bool) {
	switch gr {
	case Pods:
		return Pod(obj, now), true
	case Services:
		return Usage{List: service(obj)}, true
	case VolumeClaims:
		return volumeClaim(obj), true
	case ResourceClaims:
		return Usage{List: resourceClaim(obj)}, true
	}
	return Usage{}, false
}

// Entry is the usage as a log entry carries it, nil if there is none.
func (u Usage) Entry() *proto.Usage {
	amounts := u.amounts()
	if len(amounts) == 0 && len(u.Facts) == 0 {
		return nil
	}
	entry := &proto.Usage{Facts: u.Facts, Amounts: amounts}
	for i := 1; i < len(u.Facts); i++ {
		if u.Facts[i].Name == u.Facts[i-1].Name {
			entry.Facts, entry.MoreFacts = splitFacts(u.Facts)
			break
		}
	}
	return entry
}

// Names of amounts. Several names in a quota can mean one of them: see Resource.
const (
	pods          = string(corev1.ResourcePods)
	requestsCPU   = string(corev1.ResourceRequestsCPU)
	limitsCPU     = string(corev1.ResourceLimitsCPU)
	nodePorts     = string(corev1.ResourceServicesNodePorts)
	loadBalancers = string(corev1.ResourceServicesLoadBalancers)
	claims        = string(corev1.ResourcePersistentVolumeClaims)
	storage       = string(corev1.ResourceRequestsStorage)

	requestsPrefix = corev1.DefaultResourceRequestsPrefix
	limitsPrefix   = "limits."
	hugePages      = corev1.ResourceHugePagesPrefix
	ofStorageClass = ".storageclass.storage.k8s.io/"
	ofDeviceClass  = corev1.ResourceClaimsPerClass
)

// service is what a Service uses beside its place: by what it asks for, whether or not it has
// it already.
func service(obj tree.Object) (l List) {
	spec := tree.As(obj["spec"])
	ports := tree.List(spec["ports"])
	switch corev1.ServiceType(tree.Text(spec, "type")) {
	case corev1.ServiceTypeNodePort:
		l.set(nodePorts, count(int64(len(ports))))
	case corev1.ServiceTypeLoadBalancer:
		l.set(loadBalancers, count(1))
		n := int64(len(ports))
		if spec["allocateLoadBalancerNodePorts"] == false {
			n = 0
			for _, p := range ports {
				if port, _ := tree.Int(tree.As(p)["nodePort"]); port != 0 {
					n++
				}
			}
		}
		l.set(nodePorts, count(n))
	}
	return l
}

// volumeClaim is what a claim uses beside its place: storage, also by its class. One that has
// more than it asks for, after it could not grow, uses what it has.
func volumeClaim(obj tree.Object) Usage {
	var l List
	spec, status := tree.As(obj["spec"]), tree.As(obj["status"])
	class, annotated := tree.Field(obj, "metadata", "annotations", corev1.BetaStorageClassAnnotation).(string)
	if !annotated {
		class = tree.Text(spec, "storageClassName")
	}
	if class != "" {
		l.set(class+ofStorageClass+claims, count(1))
	}
	q, asks := quantityOf(tree.Field(spec, "resources", "requests", "storage"))
	if has, ok := quantityOf(tree.Field(status, "allocatedResources", "storage")); ok && has.Cmp(q) > 0 {
		q = has
	}
	if asks {
		q.RoundUp(0)
		l.set(storage, q)
		if class != "" {
			l.set(class+ofStorageClass+storage, q.DeepCopy())
		}
	}
	return Usage{List: l, Facts: volumeClaimFacts(spec, status)}
}

// resourceClaim is how many devices of each class a claim may be given: where it names
// alternatives, as many of each class as the one with most of it.
func resourceClaim(obj tree.Object) (l List) {
	for _, r := range tree.List(tree.Field(obj, "spec", "devices", "requests")) {
		request := tree.As(r)
		if alternatives := tree.List(request["firstAvailable"]); len(alternatives) > 0 {
			var most List
			for _, a := range alternatives {
				most.raise(devices(tree.As(a)))
			}
			l.addAll(most)
		} else if exactly := tree.As(request["exactly"]); exactly != nil {
			l.addAll(devices(exactly))
		}
	}
	return l
}

func devices(request tree.Object) List {
	n := int64(0)
	switch resourcev1.DeviceAllocationMode(tree.Text(request, "allocationMode")) {
	case resourcev1.DeviceAllocationModeExactCount:
		n, _ = tree.Int(request["count"])
	case resourcev1.DeviceAllocationModeAll:
		n = resourcev1.AllocationResultsMaxSize
	}
	return List{{tree.Text(request, "deviceClassName") + ofDeviceClass, count(n)}}
}
