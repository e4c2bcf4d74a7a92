package builtin

import "github.com/quorate/quorate/apiserver/objects"

// Kinds with a pod template.
var (
	podTemplateStrategy = objects.Strategy{Prepare: preparePodTemplate, Warnings: warningsForTemplateAt("template")}
	workloadStrategy    = objects.Strategy{Prepare: prepareTemplate, Warnings: withHostname(warningsForTemplate)}
	deploymentStrategy  = objects.Strategy{Prepare: prepareTemplate, Warnings: withHostname(warningsForDeployment)}
	cronJobStrategy     = objects.Strategy{Prepare: prepareCronJob, Warnings: warningsForCronJob}
)
