package openapi

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// param is one parameter of an operation.
type param struct {
	name, in, kind, description string
}

// documented is a parameter as upstream documents it, with the field of its options. Those
// that upstream explains in a page each are in our words, because they stand in every
// operation: continue, fieldValidation, limit, sendInitialEvents.
func documented(fields map[string]string, name, kind string) param {
	return param{name, "query", kind, fields[name]}
}

var (
	paramName      = param{"name", "path", "string", "name of the object"}
	paramNamespace = param{"namespace", "path", "string", "object name and auth scope, such as for teams and projects"}
	paramPath      = param{"path", "path", "string", "path to the resource"}
	paramPretty    = param{"pretty", "query", "string", "If 'true', then the output is pretty printed."}

	paramDryRun          = documented(metav1.UpdateOptions{}.SwaggerDoc(), "dryRun", "string")
	paramFieldManager    = documented(metav1.UpdateOptions{}.SwaggerDoc(), "fieldManager", "string")
	paramFieldValidation = param{"fieldValidation", "query", "string",
		"What to do with unknown or duplicate fields in the body: Ignore drops them silently, Warn (the default) drops them and sends a warning for each, Strict refuses the request with a BadRequest error."}
	paramForce = documented(metav1.PatchOptions{}.SwaggerDoc(), "force", "boolean")

	paramGracePeriod = documented(metav1.DeleteOptions{}.SwaggerDoc(), "gracePeriodSeconds", "integer")
	paramIgnoreStore = param{"ignoreStoreReadErrorWithClusterBreakingPotential", "query", "boolean",
		"Delete an object that cannot be read back from storage. An alpha feature, off here."}
	paramOrphan      = documented(metav1.DeleteOptions{}.SwaggerDoc(), "orphanDependents", "boolean")
	paramPropagation = documented(metav1.DeleteOptions{}.SwaggerDoc(), "propagationPolicy", "string")

	paramBookmarks = documented(metav1.ListOptions{}.SwaggerDoc(), "allowWatchBookmarks", "boolean")
	paramContinue  = param{"continue", "query", "string", "The token of an earlier, limited list, to go on where it ended."}
	paramFields    = documented(metav1.ListOptions{}.SwaggerDoc(), "fieldSelector", "string")
	paramLabels    = documented(metav1.ListOptions{}.SwaggerDoc(), "labelSelector", "string")
	paramLimit     = param{"limit", "query", "integer", "The most items to return; more are announced by a continue token."}
	paramVersion   = documented(metav1.ListOptions{}.SwaggerDoc(), "resourceVersion", "string")
	paramMatch     = documented(metav1.ListOptions{}.SwaggerDoc(), "resourceVersionMatch", "string")
	paramInitial   = param{"sendInitialEvents", "query", "boolean", "Begin a watch with synthetic events for the present state, followed by a bookmark."}
	paramShard     = param{"shardSelector", "query", "string", "Restrict the objects to a shard. An alpha feature, off here: the parameter is ignored."}
	paramTimeout   = documented(metav1.ListOptions{}.SwaggerDoc(), "timeoutSeconds", "integer")
	paramWatch     = documented(metav1.ListOptions{}.SwaggerDoc(), "watch", "boolean")
)

var (
	getParams   []param // upstream publishes none, though resourceVersion works
	writeParams = []param{paramDryRun, paramFieldManager, paramFieldValidation}
	patchParams = []param{paramDryRun, paramFieldManager, paramFieldValidation, paramForce}
	listParams  = []param{paramBookmarks, paramContinue, paramFields, paramLabels, paramLimit, paramVersion, paramMatch,
		paramInitial, paramShard, paramTimeout, paramWatch}
	deleteParams           = []param{paramDryRun, paramGracePeriod, paramIgnoreStore, paramOrphan, paramPropagation}
	deleteCollectionParams = []param{paramContinue, paramDryRun, paramFields, paramGracePeriod, paramIgnoreStore, paramLabels, paramLimit,
		paramOrphan, paramPropagation, paramVersion, paramMatch, paramInitial, paramShard, paramTimeout}
)
