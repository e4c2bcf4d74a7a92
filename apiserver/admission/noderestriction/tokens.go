package noderestriction

import (
	"context"
	"errors"
	"fmt"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/types/state"
	"github.com/quorate/quorate/apiserver/types/tree"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/component-helpers/storage/ephemeral"
	csitrans "k8s.io/csi-translation-lib"
	"k8s.io/klog/v2"
)

// token has tokens bound to Pods of the node, for those that these Pods name. The server binds them to
// the Node itself.
func (p *Plugin) token(ctx context.Context, node string, a *admission.Attributes) error {
	spec := tree.As(a.Object["spec"])
	ref := tree.As(spec["boundObjectRef"])
	name, uid := tree.Text(ref, "name"), tree.Text(ref, "uid")
	if tree.Text(ref, "apiVersion") != "v1" || tree.Text(ref, "kind") != "Pod" || name == "" {
		return a.Forbidden(errors.New("node requested token not bound to a pod"))
	}
	if uid == "" {
		return a.Forbidden(errors.New("node requested token with a pod binding without a uid"))
	}
	v := p.state.Version(podsResource, a.Namespace, name)
	if v == nil {
		looked(a, podsResource, a.Namespace, name, nil, false)
		return notFound("pod", name)
	}
	on, _ := v.Fields.Get("spec.nodeName")
	looked(a, podsResource, a.Namespace, name, v, uid == v.UID && on == node)
	if uid != v.UID {
		return a.Forbidden(fmt.Errorf("the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", uid))
	}
	if on != node {
		return a.Forbidden(errors.New("node requested token bound to a pod scheduled on a different node"))
	}
	pod, err := state.Get[corev1.Pod](p.state, podsResource, a.Namespace, name)
	if err != nil {
		return a.Forbidden(err)
	}
	if pod == nil {
		return notFound("pod", name)
	}
	if err := p.audience(ctx, pod, a, tree.List(spec["audiences"])); err != nil {
		return a.Forbidden(err)
	}
	return nil
}

// audience checks whom a token is for.
func (p *Plugin) audience(ctx context.Context, pod *corev1.Pod, a *admission.Attributes, audiences []any) error {
	audience := ""
	switch len(audiences) {
	case 0:
	case 1:
		audience, _ = audiences[0].(string)
	default:
		return errors.New("node may only request 0 or 1 audiences")
	}
	named, err := p.names(ctx, pod, a, audience)
	if err != nil {
		return fmt.Errorf("error validating audience %q: %w", audience, err)
	}
	if named {
		return nil
	}
	a.ConsultedRoles(a.Namespace)
	decision, _, err := p.authorizer.Authorize(ctx, auth.Attributes{
		User: a.User, Verb: "request-serviceaccounts-token-audience", Namespace: a.Namespace, APIVersion: "v1",
		Resource: audience, Name: a.Name, ResourceRequest: true, Basis: a,
	})
	switch {
	case decision == auth.Allow:
		return nil
	case err != nil:
		return fmt.Errorf("audience %q not found in pod spec volume, error authorizing %s to request tokens for this audience: %w", audience, a.User.Name, err)
	}
	return fmt.Errorf("audience %q not found in pod spec volume, %s is not authorized to request tokens for this audience", audience, a.User.Name)
}

// names reports whether a volume of a Pod asks for tokens for an audience: itself, or the driver that
// mounts it.
func (p *Plugin) names(ctx context.Context, pod *corev1.Pod, a *admission.Attributes, audience string) (bool, error) {
	var failed []error
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Projected != nil {
			for _, s := range v.Projected.Sources {
				if s.ServiceAccountToken != nil && s.ServiceAccountToken.Audience == audience {
					return true, nil
				}
			}
		}
		driver, err := p.driver(ctx, pod, v, a)
		if err == nil && driver != "" {
			var named bool
			if named, err = p.driverNames(a, driver, audience); named {
				return true, nil
			}
		}
		if err != nil {
			failed = append(failed, err)
		}
	}
	return false, utilerrors.NewAggregate(failed)
}

var translator = csitrans.New()

// driver is the CSI driver that mounts a volume; empty: none does.
func (p *Plugin) driver(ctx context.Context, pod *corev1.Pod, v *corev1.Volume, a *admission.Attributes) (string, error) {
	switch {
	case v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil:
		return p.driverOfClaim(ctx, a, pod.Namespace, ephemeral.VolumeClaimName(pod, v))
	case v.PersistentVolumeClaim != nil:
		return p.driverOfClaim(ctx, a, pod.Namespace, v.PersistentVolumeClaim.ClaimName)
	case v.CSI != nil:
		return v.CSI.Driver, nil
	case translator.IsInlineMigratable(v):
		volume, err := translator.TranslateInTreeInlineVolumeToCSI(klog.FromContext(ctx), v, pod.Namespace)
		if err == nil && volume != nil && volume.Spec.CSI != nil {
			return volume.Spec.CSI.Driver, nil
		}
		return "", err
	}
	return "", nil
}

func (p *Plugin) driverOfClaim(ctx context.Context, a *admission.Attributes, namespace, name string) (string, error) {
	claim, err := get[corev1.PersistentVolumeClaim](p, a, corev1.Resource("persistentvolumeclaims"), "persistentvolumeclaim", namespace, name)
	if err != nil {
		return "", err
	}
	volume, err := get[corev1.PersistentVolume](p, a, corev1.Resource("persistentvolumes"), "persistentvolume", "", claim.Spec.VolumeName)
	if err != nil {
		return "", err
	}
	if volume.Spec.CSI == nil && translator.IsPVMigratable(volume) {
		if volume, err = translator.TranslateInTreePVToCSI(klog.FromContext(ctx), volume); err != nil {
			return "", err
		}
	}
	if volume == nil || volume.Spec.CSI == nil {
		return "", nil
	}
	return volume.Spec.CSI.Driver, nil
}

func (p *Plugin) driverNames(a *admission.Attributes, name, audience string) (bool, error) {
	gr := schema.GroupResource{Group: storagev1.GroupName, Resource: "csidrivers"}
	driver, err := get[storagev1.CSIDriver](p, a, gr, "csidriver", "", name)
	if err != nil {
		return false, err
	}
	for _, r := range driver.Spec.TokenRequests {
		if r.Audience == audience {
			return true, nil
		}
	}
	return false, nil
}

// get reads an object that the decision follows from, whatever changes of it. Errors: NotFound, and it
// cannot be read.
func get[T any](p *Plugin, a *admission.Attributes, gr schema.GroupResource, singular, namespace, name string) (*T, error) {
	looked(a, gr, namespace, name, nil, false)
	obj, err := state.Get[T](p.state, gr, namespace, name)
	if err == nil && obj == nil {
		return nil, notFoundIn(gr.Group, singular, name)
	}
	return obj, err
}
