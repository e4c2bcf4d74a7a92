package validation

import (
	"context"
	"crypto/tls"
	"fmt"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	jobutil "k8s.io/kubernetes/pkg/api/job"
	nodeutil "k8s.io/kubernetes/pkg/api/node"
	volumeutil "k8s.io/kubernetes/pkg/api/persistentvolume"
	claimutil "k8s.io/kubernetes/pkg/api/persistentvolumeclaim"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	serviceutil "k8s.io/kubernetes/pkg/api/service"
	storageutil "k8s.io/kubernetes/pkg/api/storage"
	"k8s.io/kubernetes/pkg/apis/apps"
	"k8s.io/kubernetes/pkg/apis/batch"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/discovery"
	"k8s.io/kubernetes/pkg/apis/networking"
	"k8s.io/kubernetes/pkg/apis/node"
	"k8s.io/kubernetes/pkg/apis/resource"
	"k8s.io/kubernetes/pkg/apis/storage"
)

// What is told of valid objects: upstream's functions, asked as its registry strategies ask them
// (WarningsOnCreate and WarningsOnUpdate), or written again where they are in a strategy, which links
// etcd's client. obj is the object as it will be, old is nil for a new one. Where upstream asks
// whether the generation is another one, which changes later here, what it counts is compared.

// ctx is not used by upstream's functions.
var ctx = context.Background()

var (
	specTemplate = field.NewPath("spec", "template")
	jobTemplate  = field.NewPath("spec", "jobTemplate", "spec")
)

func same(a, b any) bool { return apiequality.Semantic.DeepEqual(a, b) }

// hostname is about names of objects that become hostnames.
func hostname(name, what string) []string {
	if msgs := utilvalidation.IsDNS1123Label(name); len(msgs) > 0 {
		return []string{fmt.Sprintf("metadata.name: %s, which can result in surprising behavior; a DNS label is recommended: %v", what, msgs)}
	}
	return nil
}

const podNames = "this is used in Pod names and hostnames"

// podWarnings tell nothing of an update, which is mostly a controller's.
func podWarnings(p, old *core.Pod) []string {
	if old != nil {
		return nil
	}
	if few := withinBounds(&p.Spec); few != &p.Spec {
		p = &core.Pod{ObjectMeta: p.ObjectMeta, Spec: *few}
	}
	return append(hostname(p.Name, "this is used in the Pod's hostname"), podutil.GetWarningsForPod(ctx, p, nil)...)
}

func templateWarnings(at *field.Path, t, old *core.PodTemplateSpec) []string {
	if t == nil {
		return nil
	}
	if few := withinBounds(&t.Spec); few != &t.Spec {
		t = &core.PodTemplateSpec{ObjectMeta: t.ObjectMeta, Spec: *few}
	}
	return podutil.GetWarningsForPodTemplate(ctx, at, t, old)
}

func podTemplateWarnings(t, old *core.PodTemplate) []string {
	switch {
	case old == nil:
		return templateWarnings(field.NewPath("template"), &t.Template, nil)
	case same(&t.Template, &old.Template):
		return nil
	}
	return templateWarnings(field.NewPath("template"), &t.Template, &old.Template)
}

// replicationControllerWarnings of an update are about the template as it will be. Upstream's are about
// the old one: it has two arguments in the wrong order.
func replicationControllerWarnings(rc, old *core.ReplicationController) []string {
	switch {
	case old == nil:
		return append(hostname(rc.Name, podNames), templateWarnings(specTemplate, rc.Spec.Template, nil)...)
	case same(&rc.Spec, &old.Spec):
		return nil
	}
	return templateWarnings(specTemplate, rc.Spec.Template, old.Spec.Template)
}

func replicaSetWarnings(rs, old *apps.ReplicaSet) []string {
	switch {
	case old == nil:
		return append(hostname(rs.Name, podNames), templateWarnings(specTemplate, &rs.Spec.Template, nil)...)
	case same(&rs.Spec, &old.Spec):
		return nil
	}
	return templateWarnings(specTemplate, &rs.Spec.Template, &old.Spec.Template)
}

// deploymentWarnings: annotations count for the generation of a Deployment.
func deploymentWarnings(d, old *apps.Deployment) []string {
	switch {
	case old == nil:
		return append(hostname(d.Name, podNames), templateWarnings(specTemplate, &d.Spec.Template, nil)...)
	case same(&d.Spec, &old.Spec) && same(d.Annotations, old.Annotations):
		return nil
	}
	return templateWarnings(specTemplate, &d.Spec.Template, &old.Spec.Template)
}

func daemonSetWarnings(d, old *apps.DaemonSet) []string {
	switch {
	case old == nil:
		return templateWarnings(specTemplate, &d.Spec.Template, nil)
	case d.Spec.TemplateGeneration == old.Spec.TemplateGeneration:
		return nil
	}
	return templateWarnings(specTemplate, &d.Spec.Template, &old.Spec.Template)
}

func statefulSetWarnings(s, old *apps.StatefulSet) (out []string) {
	switch {
	case old == nil:
		out = templateWarnings(specTemplate, &s.Spec.Template, nil)
	case !same(&s.Spec, &old.Spec):
		out = templateWarnings(specTemplate, &s.Spec.Template, &old.Spec.Template)
	}
	for i, claim := range s.Spec.VolumeClaimTemplates {
		at := field.NewPath("spec", "volumeClaimTemplates").Index(i)
		if old != nil {
			at = at.Child("Spec") // so upstream spells it there
		}
		out = append(out, claimutil.GetWarningsForPersistentVolumeClaimSpec(at, claim.Spec)...)
	}
	if n := s.Spec.RevisionHistoryLimit; n != nil && *n < 0 {
		out = append(out, "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended")
	}
	return out
}

func jobSpecWarnings(at *field.Path, spec, old *batch.JobSpec) []string {
	if few := withinBounds(&spec.Template.Spec); few != &spec.Template.Spec {
		bounded := *spec
		bounded.Template.Spec, spec = *few, &bounded
	}
	return jobutil.WarningsForJobSpec(ctx, at, spec, old)
}

func jobWarnings(j, old *batch.Job) []string {
	switch {
	case old == nil:
		return append(hostname(j.Name, podNames), jobSpecWarnings(field.NewPath("spec"), &j.Spec, nil)...)
	case same(&j.Spec, &old.Spec):
		return nil
	}
	return jobSpecWarnings(field.NewPath("spec"), &j.Spec, &old.Spec)
}

func cronJobWarnings(c, old *batch.CronJob) (out []string) {
	if old == nil {
		return append(hostname(c.Name, podNames), jobSpecWarnings(jobTemplate, &c.Spec.JobTemplate.Spec, nil)...)
	}
	if !same(&c.Spec, &old.Spec) {
		out = jobSpecWarnings(jobTemplate, &c.Spec.JobTemplate.Spec, &old.Spec.JobTemplate.Spec)
	}
	if strings.Contains(c.Spec.Schedule, "TZ") {
		out = append(out, fmt.Sprintf("cannot use TZ or CRON_TZ in %s, use timeZone instead, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details", field.NewPath("spec", "spec", "schedule")))
	}
	return out
}

func serviceWarnings(s, old *core.Service) []string { return serviceutil.GetWarningsForService(s, old) }

func nodeWarnings(n, _ *core.Node) (out []string) {
	//lint:ignore SA1019 it is what is warned of
	if n.Spec.ConfigSource != nil {
		out = append(out, "spec.configSource: the feature is removed")
	}
	if n.Spec.DoNotUseExternalID != "" {
		out = append(out, "spec.externalID: this field is deprecated, and is unused by Kubernetes")
	}
	for i, block := range n.Spec.PodCIDRs {
		out = append(out, utilvalidation.GetWarningsForCIDR(field.NewPath("spec", "podCIDRs").Index(i), block)...)
	}
	return out
}

func volumeWarnings(v, _ *core.PersistentVolume) []string {
	return volumeutil.GetWarningsForPersistentVolume(v)
}

func claimWarnings(c, _ *core.PersistentVolumeClaim) []string {
	return claimutil.GetWarningsForPersistentVolumeClaim(c)
}

// secretWarnings: the key of a certificate is its own.
func secretWarnings(s, _ *core.Secret) []string {
	if s.Type == core.SecretTypeTLS {
		if _, err := tls.X509KeyPair(s.Data[core.TLSCertKey], s.Data[core.TLSPrivateKeyKey]); err != nil {
			return []string{err.Error()}
		}
	}
	return nil
}

// sliceWarnings: drivers have names in small letters.
func sliceWarnings(s, _ *resource.ResourceSlice) []string {
	if s.Spec.Driver == strings.ToLower(s.Spec.Driver) {
		return nil
	}
	return []string{fmt.Sprintf("spec.driver: driver names should be lowercase; %q contains uppercase characters", s.Spec.Driver)}
}

// quotaWarnings are of a new one only.
func quotaWarnings(q, old *core.ResourceQuota) (out []string) {
	if old != nil {
		return nil
	}
	for _, name := range []core.ResourceName{core.ResourceCPU, core.ResourceMemory, core.ResourceStorage, core.ResourceEphemeralStorage} {
		requested := "requests." + name
		if _, set := q.Spec.Hard[requested]; !set && (name == core.ResourceCPU || name == core.ResourceMemory) {
			requested = name
		}
		request, set := q.Spec.Hard[requested]
		limit, limited := q.Spec.Hard["limits."+name]
		if set && limited && request.Cmp(limit) > 0 {
			out = append(out, fmt.Sprintf("ResourceQuota %s (%s) should be less than limits.%s (%s)", requested, request.String(), name, limit.String()))
		}
	}
	return out
}

const ingressClassAnnotation = "kubernetes.io/ingress.class"

// ingressWarnings are of a new one only.
func ingressWarnings(i, old *networking.Ingress) []string {
	if _, annotated := i.Annotations[ingressClassAnnotation]; old != nil || !annotated || i.Spec.IngressClassName != nil {
		return nil
	}
	return []string{fmt.Sprintf("annotation %q is deprecated, please use 'spec.ingressClassName' instead", ingressClassAnnotation)}
}

func networkPolicyWarnings(p, _ *networking.NetworkPolicy) (out []string) {
	peers := func(at *field.Path, list []networking.NetworkPolicyPeer) {
		for j := range list {
			block := list[j].IPBlock
			if block == nil {
				continue
			}
			at := at.Index(j).Child("ipBlock")
			out = append(out, utilvalidation.GetWarningsForCIDR(at.Child("cidr"), block.CIDR)...)
			for k, except := range block.Except {
				out = append(out, utilvalidation.GetWarningsForCIDR(at.Child("except").Index(k), except)...)
			}
		}
	}
	for i := range p.Spec.Ingress {
		peers(field.NewPath("spec", "ingress").Index(i).Child("from"), p.Spec.Ingress[i].From)
	}
	for i := range p.Spec.Egress {
		peers(field.NewPath("spec", "egress").Index(i).Child("to"), p.Spec.Egress[i].To)
	}
	return out
}

// endpointSliceWarnings are of addresses that clients write: upstream's controllers write good ones.
func endpointSliceWarnings(s, old *discovery.EndpointSlice) (out []string) {
	if s.AddressType == discovery.AddressTypeFQDN {
		if old == nil {
			out = append(out, "spec.addressType: FQDN endpoints are deprecated")
		}
		return out // the names are no addresses, which upstream logs
	}
	switch s.Labels[discoveryv1.LabelManagedBy] {
	case "endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io":
		return nil
	}
	for i, e := range s.Endpoints {
		for j, address := range e.Addresses {
			out = append(out, utilvalidation.GetWarningsForIP(field.NewPath("endpoints").Index(i).Child("addresses").Index(j), address)...)
		}
	}
	return out
}

func runtimeClassWarnings(c, _ *node.RuntimeClass) []string {
	return nodeutil.GetWarningsForRuntimeClass(c)
}

func storageClassWarnings(c, _ *storage.StorageClass) []string {
	return storageutil.GetWarningsForStorageClass(c)
}

// driverWarnings are about tokens that a driver gets where it may log them.
func driverWarnings(d, old *storage.CSIDriver) []string {
	if len(d.Spec.TokenRequests) == 0 || d.Spec.ServiceAccountTokenInSecrets != nil || old != nil && same(old.Spec.TokenRequests, d.Spec.TokenRequests) {
		return nil
	}
	return []string{"spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes"}
}

func storageCapacityWarnings(c, _ *storage.CSIStorageCapacity) []string {
	return storageutil.GetWarningsForCSIStorageCapacity(c)
}

// Of a Pod, upstream compares ports of one number each with each, and so the files of a volume, for
// which it makes two texts as long as their paths. A body may have 20,000 ports or files.
const (
	mostPairs     = 100 * 100
	mostPathBytes = 4 << 20
)

// withinBounds is the spec without its ports, or without the volumes that have files, where there are too
// many to be compared: nothing is told of them then.
func withinBounds(spec *core.PodSpec) *core.PodSpec {
	ports, files := tooManyPorts(spec), tooManyFiles(spec.Volumes)
	if !ports && !files {
		return spec
	}
	spec = spec.DeepCopy()
	if ports {
		podutil.VisitContainers(spec, podutil.AllContainers, func(c *core.Container, _ podutil.ContainerType) bool {
			c.Ports = nil
			return true
		})
	}
	if files {
		for i := range spec.Volumes {
			v := &spec.Volumes[i]
			v.ConfigMap, v.Secret, v.DownwardAPI, v.Projected = nil, nil, nil, nil
		}
	}
	return spec
}

func tooManyPorts(spec *core.PodSpec) bool {
	n := 0
	for c := range podutil.ContainerIter(spec, podutil.AllContainers) {
		n += len(c.Ports)
	}
	if n*n <= mostPairs {
		return false
	}
	type port struct {
		number   int32
		protocol core.Protocol
	}
	pairs, before := 0, map[port]int{}
	for c := range podutil.ContainerIter(spec, podutil.AllContainers) {
		for _, p := range c.Ports {
			key := port{p.ContainerPort, p.Protocol}
			pairs += 2 * before[key]
			before[key]++
		}
	}
	return pairs > mostPairs
}

func tooManyFiles(volumes []core.Volume) bool {
	pairs, bytes := 0, 0
	for i := range volumes {
		n, size := 0, 0
		file := func(path string) { n, size = n+1, size+len(path) }
		keys := func(items []core.KeyToPath) {
			for j := range items {
				file(items[j].Path)
			}
		}
		downward := func(items []core.DownwardAPIVolumeFile) {
			for j := range items {
				file(items[j].Path)
			}
		}
		v := &volumes[i]
		if v.ConfigMap != nil {
			keys(v.ConfigMap.Items)
		}
		if v.Secret != nil {
			keys(v.Secret.Items)
		}
		if v.DownwardAPI != nil {
			downward(v.DownwardAPI.Items)
		}
		if v.Projected != nil {
			for j := range v.Projected.Sources {
				s := &v.Projected.Sources[j]
				if s.ConfigMap != nil {
					keys(s.ConfigMap.Items)
				}
				if s.Secret != nil {
					keys(s.Secret.Items)
				}
				if s.DownwardAPI != nil {
					downward(s.DownwardAPI.Items)
				}
				if s.ServiceAccountToken != nil {
					file(s.ServiceAccountToken.Path)
				}
				if s.ClusterTrustBundle != nil {
					file(s.ClusterTrustBundle.Path)
				}
				if s.PodCertificate != nil {
					file(s.PodCertificate.CertificateChainPath)
					file(s.PodCertificate.KeyPath)
					file(s.PodCertificate.CredentialBundlePath)
				}
			}
		}
		pairs, bytes = pairs+n*n, bytes+n*size
	}
	return pairs > mostPairs || bytes > mostPathBytes
}
