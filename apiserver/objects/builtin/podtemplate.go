package builtin

import "github.com/quorate/quorate/apiserver/objects"

// Kinds with a pod template.
var (
	podTemplateStrategy = objects.Strategy{Prepare: preparePodTemplate}
	workloadStrategy    = objects.Strategy{Prepare: prepareTemplate}
	cronJobStrategy     = objects.Strategy{Prepare: prepareCronJob}
)
