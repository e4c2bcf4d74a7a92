package validation

import (
	batchv1 "k8s.io/api/batch/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/batch"
	v1 "k8s.io/kubernetes/pkg/apis/batch/v1"
	"k8s.io/kubernetes/pkg/apis/batch/validation"
	"k8s.io/utils/ptr"
)

var batchKinds = map[string]Kind{
	"cronjobs.batch": rules[batchv1.CronJob, batch.CronJob]{
		convert: v1.Convert_v1_CronJob_To_batch_CronJob,
		warn:    cronJobWarnings,
		create: func(c *batch.CronJob) field.ErrorList {
			return validation.ValidateCronJobCreate(c, podutil.GetValidationOptionsFromPodTemplate(&c.Spec.JobTemplate.Spec.Template, nil))
		},
		update: func(c, old *batch.CronJob) field.ErrorList {
			return validation.ValidateCronJobUpdate(c, old, podutil.GetValidationOptionsFromPodTemplate(&c.Spec.JobTemplate.Spec.Template, &old.Spec.JobTemplate.Spec.Template))
		},
		parts: map[string]func(c, old *batch.CronJob) field.ErrorList{"status": none[batch.CronJob]},
	},
	"jobs.batch": rules[batchv1.Job, batch.Job]{
		convert: v1.Convert_v1_Job_To_batch_Job,
		warn:    jobWarnings,
		create: func(j *batch.Job) field.ErrorList {
			return validation.ValidateJob(j, validation.JobValidationOptions{
				PodValidationOptions:  podutil.GetValidationOptionsFromPodTemplate(&j.Spec.Template, nil),
				RequirePrefixedLabels: true,
			})
		},
		update: func(j, old *batch.Job) field.ErrorList {
			opts := jobUpdateOptions(j, old)
			return append(validation.ValidateJob(j, opts), validation.ValidateJobUpdate(j, old, opts)...)
		},
		parts: map[string]func(j, old *batch.Job) field.ErrorList{
			"status": func(j, old *batch.Job) field.ErrorList {
				return validation.ValidateJobUpdateStatus(j, old, jobStatusOptions(j, old))
			},
		},
	},
}

// jobUpdateOptions say what of a Job's template may change: where its Pods run and what they
// ask for, while none of them runs and the Job is suspended.
func jobUpdateOptions(j, old *batch.Job) validation.JobValidationOptions {
	opts := validation.JobValidationOptions{PodValidationOptions: podutil.GetValidationOptionsFromPodTemplate(&j.Spec.Template, &old.Spec.Template)}
	opts.AllowInvalidLabelValueInSelector = opts.AllowInvalidLabelValueInSelector || metavalidation.LabelSelectorHasInvalidLabelValue(old.Spec.Selector)
	idle := ptr.Deref(old.Spec.Suspend, false) && old.Status.Active == 0 &&
		(old.Status.StartTime == nil || validation.IsConditionTrue(old.Status.Conditions, batch.JobSuspended))
	opts.AllowMutablePodResources, opts.AllowMutableSchedulingDirectives = idle, idle
	// Templates of Jobs from before there were labels with a prefix have none.
	_, named := old.Spec.Template.Labels[batch.JobNameLabel]
	_, numbered := old.Spec.Template.Labels[batch.ControllerUidLabel]
	opts.RequirePrefixedLabels = named && numbered
	return opts
}

// jobStatusOptions choose the rules that a write of a status is held against: those that
// concern what it changes (KEP-4368).
func jobStatusOptions(j, old *batch.Job) validation.JobStatusValidationOptions {
	now, was := &j.Status, &old.Status
	turned := func(is func(*batch.Job) bool) bool { return is(j) != is(old) }
	condition := func(c batch.JobConditionType) func(*batch.Job) bool {
		return func(j *batch.Job) bool { return validation.IsConditionTrue(j.Status.Conditions, c) }
	}
	var (
		finished     = turned(validation.IsJobFinished)
		complete     = turned(validation.IsJobComplete)
		failed       = turned(validation.IsJobFailed)
		failing      = turned(condition(batch.JobFailureTarget))
		succeeding   = turned(condition(batch.JobSuccessCriteriaMet))
		completedIdx = now.CompletedIndexes != was.CompletedIndexes
		failedIdx    = !ptr.Equal(now.FailedIndexes, was.FailedIndexes)
		active       = now.Active != was.Active
		ready        = !ptr.Equal(now.Ready, was.Ready)
		terminating  = !ptr.Equal(now.Terminating, was.Terminating)
		started      = !ptr.Equal(now.StartTime, was.StartTime)
		completed    = !ptr.Equal(now.CompletionTime, was.CompletionTime)
		uncounted    = !apiequality.Semantic.DeepEqual(now.UncountedTerminatedPods, was.UncountedTerminatedPods)
		indexed      = ptr.Deref(j.Spec.CompletionMode, batch.NonIndexedCompletion) == batch.IndexedCompletion
		never        = ptr.Deref(j.Spec.Suspend, false) && j.Spec.Completions != nil && *j.Spec.Completions == 0
		resumed      = condition(batch.JobSuspended)(old) && validation.IsConditionFalse(now.Conditions, batch.JobSuspended)
	)
	return validation.JobStatusValidationOptions{
		// An Indexed Job that is scaled down forgets indexes that succeeded.
		RejectDecreasingSucceededCounter:             !indexed || !ptr.Equal(j.Spec.Completions, j.Spec.Parallelism),
		RejectDecreasingFailedCounter:                true,
		RejectDisablingTerminalCondition:             true,
		RejectInvalidCompletedIndexes:                completedIdx,
		RejectInvalidFailedIndexes:                   failedIdx,
		RejectCompletedIndexesForNonIndexedJob:       completedIdx,
		RejectFailedIndexesForNoBackoffLimitPerIndex: failedIdx,
		RejectFailedIndexesOverlappingCompleted:      failedIdx || completedIdx,
		RejectFailedJobWithoutFailureTarget:          failed || failedIdx,
		RejectCompleteJobWithoutSuccessCriteriaMet:   complete || succeeding,
		RejectFinishedJobWithActivePods:              finished || active,
		RejectFinishedJobWithoutStartTime:            (finished || started) && !never,
		RejectFinishedJobWithUncountedTerminatedPods: finished || uncounted,
		RejectStartTimeUpdateForUnsuspendedJob:       started && !resumed,
		RejectCompletionTimeBeforeStartTime:          started || completed,
		RejectMutatingCompletionTime:                 true,
		RejectNotCompleteJobWithCompletionTime:       complete || completed,
		RejectCompleteJobWithoutCompletionTime:       complete || completed,
		RejectCompleteJobWithFailedCondition:         complete || failed,
		RejectCompleteJobWithFailureTargetCondition:  complete || failing,
		AllowForSuccessCriteriaMetInExtendedScope:    true,
		RejectMoreReadyThanActivePods:                ready || active,
		RejectFinishedJobWithTerminatingPods:         finished || terminating,
	}
}
