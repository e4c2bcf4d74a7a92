package openapi

// param is one parameter of an operation.
type param struct {
	name, in, kind, description string
}

var (
	paramName      = param{"name", "path", "string", "name of the object"}
	paramNamespace = param{"namespace", "path", "string", "object name and auth scope, such as for teams and projects"}
	paramPretty    = param{"pretty", "query", "string", "If 'true', then the output is pretty printed."}

	paramDryRun = param{"dryRun", "query", "string",
		"When present, indicates that modifications should not be persisted. An invalid or unrecognized directive will result in an error response and no further processing of the request. Valid values are: - All: all stages will be processed"}
	paramFieldManager = param{"fieldManager", "query", "string",
		"A name associated with the actor that is making these changes: at most 128 printable characters. Required for apply requests."}
	paramFieldValidation = param{"fieldValidation", "query", "string",
		"What to do with unknown or duplicate fields in the body: Ignore drops them silently, Warn (the default) drops them and sends a warning for each, Strict refuses the request with a BadRequest error."}
	paramForce = param{"force", "query", "boolean",
		"Take over fields that other managers own. Must be unset for patches that are not apply patches."}

	paramGracePeriod = param{"gracePeriodSeconds", "query", "integer",
		"The duration in seconds before the object should be deleted; zero means at once. Default: that of the object."}
	paramIgnoreStore = param{"ignoreStoreReadErrorWithClusterBreakingPotential", "query", "boolean",
		"Delete an object that cannot be read back from storage. An alpha feature, off here."}
	paramOrphan = param{"orphanDependents", "query", "boolean",
		"Deprecated: use propagationPolicy. Whether dependents are orphaned."}
	paramPropagation = param{"propagationPolicy", "query", "string",
		"Whether and how dependents are deleted: Orphan, Background or Foreground."}

	paramBookmarks = param{"allowWatchBookmarks", "query", "boolean", "Ask for events of type BOOKMARK. Ignored if this is not a watch."}
	paramContinue  = param{"continue", "query", "string", "The token of an earlier, limited list, to go on where it ended."}
	paramFields    = param{"fieldSelector", "query", "string", "Restrict the objects by their fields. Default: everything."}
	paramLabels    = param{"labelSelector", "query", "string", "Restrict the objects by their labels. Default: everything."}
	paramLimit     = param{"limit", "query", "integer", "The most items to return; more are announced by a continue token."}
	paramVersion   = param{"resourceVersion", "query", "string", "A constraint on the resource versions that a request may be served from. Default: unset, the most recent state."}
	paramMatch     = param{"resourceVersionMatch", "query", "string", "How resourceVersion is applied to lists: Exact or NotOlderThan."}
	paramInitial   = param{"sendInitialEvents", "query", "boolean", "Begin a watch with synthetic events for the present state, followed by a bookmark."}
	paramShard     = param{"shardSelector", "query", "string", "Restrict the objects to a shard. An alpha feature, off here: the parameter is ignored."}
	paramTimeout   = param{"timeoutSeconds", "query", "integer", "Timeout of the list or watch, whatever its activity."}
	paramWatch     = param{"watch", "query", "boolean", "Watch for changes and return them as a stream of add, update and remove events."}
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
