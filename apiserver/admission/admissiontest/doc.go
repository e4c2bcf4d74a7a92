// Package admissiontest runs the tests of admission plugins that are text files: what is
// there, what is written, and what the plugin makes of it.
//
//	# a comment
//	has priorityclasses.scheduling.k8s.io {metadata: {name: high}, value: 7}
//	== title of a case
//	has nodes {metadata: {name: n}}
//	CREATE pods {metadata: {name: a, namespace: ns}, spec: {}}
//	= {metadata: {name: a, namespace: ns}, spec: {priority: 7}}
//
// What is there above the first case is there in all of them. Objects are YAML, in one line
// or in lines that are indented. UPDATE is followed by OLD and the object as it was, DELETE
// is written with the object as it is. A subresource stands behind a slash: "pods/binding".
//
// The result is the object that the plugin leaves ("= same": the one it was given), or a
// refusal: "! Forbidden: text" with the reason of a Status error, "! text" of another error.
// A plugin is asked to admit, and to validate what has come of that.
package admissiontest
