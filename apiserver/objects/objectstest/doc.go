// Package objectstest runs operations on objects without HTTP, on a store in memory. It is for
// tests: those of package objects (what operations do), of package builtin (what kinds have as
// code), of package controllers (the node's own loops) and of admission plugins. No program imports it.
//
// NewStore is a store of objects as a server has one. Run plays files of cases against such
// stores, NewCase and Case.Play a few lines of a test in Go.
//
// A sign that stories have as well (test/harness/story: requests over HTTP) means the same: == is a
// heading, < the status of the answer, = what came of it, $ sets a variable.
//
// A file has cases, each with a store of its own that has the namespace default. A case has
// operations, each with what must come of it. It is noon of January 1, 2026, and who asks is an
// administrator.
//
//	== title
//	# why
//	as alice devs                  who asks from here on: a name, and groups besides all users'
//	VERB RESOURCE NAME ?QUERY {}   an operation, with its body
//	dry VERB ...                   as a dry run
//	behind VERB ...                on a node that has nothing yet, and does not know it
//	: created                      what came of it: created, changed, unchanged or deleted. Of a
//	                               list the keys, and "more" if there is another page; of a watch
//	                               its events
//	< 422 text                     it is refused with this code and this text, which goes on if it
//	                               ends with "..."
//	= {...}                        what came of it is this, as YAML
//	= path {...}                   a field of what came of it, as JSON; without {...}: it is not there
//	% manager Apply v1: .data.k    an entry of its managedFields; " on SUBRESOURCE" is before the colon
//	w text                         it warns, and the warning has this text
//	$var path                      ${var} is the field of what came of it from here on; ${large}
//	                               is more than an object may have, ${many} are fields of which
//	                               nobody can be said to own all, ${resources} are as many
//	                               resources as a Pod may name
//	rows TABLE KEY...              the keys of all rows of a table
//
// An admission plugin alone (Options.Plugin) is asked to admit, and to validate what has come of that:
//
//	has RESOURCE {...}             an object that is there, whatever may be wrong with it
//	old {...}                      the object as it was, of the update that follows
//	admit VERB RESOURCE {...}      a create, update, delete or connect. What comes of it is the object
//	                               that the plugin leaves
//
// These objects are YAML, on one line or on lines that are indented. Lines above the first case are
// played in each.
//
// RESOURCE is a plural with its group, behind an @ a version if it is not v1, and behind a slash
// a subresource: deployments.apps/scale. NAME is namespace/name; a path that has no name ends with
// the slash, as that of a create does, whose name is in the body. What is not in a namespace is
// called by its name alone, or / if the path has none. VERB is one of
//
//	create      a POST: the answer is what came of it, also of what is not stored
//	put         a PUT of the object, or to a subresource
//	merge       a PATCH of this type, as json and strategic
//	apply       a server-side apply
//	delete      a DELETE; the body are its options
//	get         the object
//	list        the objects of a namespace, or of all: NAME is the namespace, or /
//	clear       deletes what a list would have
//	events      what a watch would have been sent from the beginning
//
// An operation that is refused, or warns, without a line that says so fails its case. So do fields
// of a body that the kind does not have: they are warnings. Every word is used by some case, which a
// test of this package holds.
package objectstest
