package validation

import (
	appsv1 "k8s.io/api/apps/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/apps"
	v1 "k8s.io/kubernetes/pkg/apis/apps/v1"
	"k8s.io/kubernetes/pkg/apis/apps/validation"
)

var appsKinds = map[string]Kind{
	"controllerrevisions.apps": rules[appsv1.ControllerRevision, apps.ControllerRevision]{
		convert: v1.Convert_v1_ControllerRevision_To_apps_ControllerRevision,
		create:  validation.ValidateControllerRevisionCreate,
		update:  validation.ValidateControllerRevisionUpdate,
	},
	"daemonsets.apps": rules[appsv1.DaemonSet, apps.DaemonSet]{
		convert: v1.Convert_v1_DaemonSet_To_apps_DaemonSet,
		warn:    daemonSetWarnings,
		create: func(d *apps.DaemonSet) field.ErrorList {
			return validation.ValidateDaemonSet(d, podutil.GetValidationOptionsFromPodTemplate(&d.Spec.Template, nil))
		},
		update: func(d, old *apps.DaemonSet) field.ErrorList {
			opts := podutil.GetValidationOptionsFromPodTemplate(&d.Spec.Template, &old.Spec.Template)
			opts.AllowInvalidLabelValueInSelector = opts.AllowInvalidLabelValueInSelector || metavalidation.LabelSelectorHasInvalidLabelValue(old.Spec.Selector)
			return validation.ValidateDaemonSetUpdate(d, old, opts)
		},
		parts: map[string]func(d, old *apps.DaemonSet) field.ErrorList{"status": validation.ValidateDaemonSetStatusUpdate},
	},
	"deployments.apps": rules[appsv1.Deployment, apps.Deployment]{
		convert: v1.Convert_v1_Deployment_To_apps_Deployment,
		warn:    deploymentWarnings,
		create: func(d *apps.Deployment) field.ErrorList {
			return validation.ValidateDeployment(d, podutil.GetValidationOptionsFromPodTemplate(&d.Spec.Template, nil))
		},
		update: func(d, old *apps.Deployment) field.ErrorList {
			return validation.ValidateDeploymentUpdate(d, old, podutil.GetValidationOptionsFromPodTemplate(&d.Spec.Template, &old.Spec.Template))
		},
		parts: map[string]func(d, old *apps.Deployment) field.ErrorList{"status": validation.ValidateDeploymentStatusUpdate},
	},
	"replicasets.apps": rules[appsv1.ReplicaSet, apps.ReplicaSet]{
		convert: v1.Convert_v1_ReplicaSet_To_apps_ReplicaSet,
		warn:    replicaSetWarnings,
		create: func(rs *apps.ReplicaSet) field.ErrorList {
			return validation.ValidateReplicaSet(rs, podutil.GetValidationOptionsFromPodTemplate(&rs.Spec.Template, nil))
		},
		update: func(rs, old *apps.ReplicaSet) field.ErrorList {
			return validation.ValidateReplicaSetUpdate(rs, old, podutil.GetValidationOptionsFromPodTemplate(&rs.Spec.Template, &old.Spec.Template))
		},
		parts: map[string]func(rs, old *apps.ReplicaSet) field.ErrorList{"status": validation.ValidateReplicaSetStatusUpdate},
	},
	"statefulsets.apps": rules[appsv1.StatefulSet, apps.StatefulSet]{
		convert: v1.Convert_v1_StatefulSet_To_apps_StatefulSet,
		warn:    statefulSetWarnings,
		create: func(s *apps.StatefulSet) field.ErrorList {
			return validation.ValidateStatefulSet(s, podutil.GetValidationOptionsFromPodTemplate(&s.Spec.Template, nil))
		},
		update: func(s, old *apps.StatefulSet) field.ErrorList {
			return validation.ValidateStatefulSetUpdate(s, old, podutil.GetValidationOptionsFromPodTemplate(&s.Spec.Template, &old.Spec.Template))
		},
		parts: map[string]func(s, old *apps.StatefulSet) field.ErrorList{"status": validation.ValidateStatefulSetStatusUpdate},
	},
}
