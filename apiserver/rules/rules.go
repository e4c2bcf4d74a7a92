// Package rules holds what a few kinds have as code upstream: fields that the
// server generates, and relations between fields that no schema can state. It is
// pure and works on decoded trees that have been through package schema.
//
// The types to know:
//
//   - Rules of one resource; All is the table of them.
package rules

import (
	"github.com/quorate/quorate/apiserver/tree"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Rules of a resource. Functions that are nil do nothing. old is nil for a
// create. Values of obj below its first level and its metadata may be shared with
// other trees: a function replaces them.
type Rules struct {
	// Prepare fills in what the server generates, and takes out what cannot be
	// written. The object has its name and uid, and its defaults.
	Prepare func(obj, old tree.Object)
	// Validate returns what upstream would refuse the object for.
	Validate func(obj, old tree.Object) field.ErrorList
	// ValidateClients is what clients are refused for besides, and the node itself is not:
	// the endpoints of the Service kubernetes are where members say that they are, which
	// may be one machine.
	ValidateClients func(obj, old tree.Object) field.ErrorList
}

var byResource = map[schema.GroupResource]*Rules{
	{Resource: "configmaps"}:           {Validate: configMap},
	{Resource: "secrets"}:              {Validate: secret},
	{Resource: "endpoints"}:            {ValidateClients: endpointAddresses},
	{Resource: "pods"}:                 {Validate: pod},
	{Group: "batch", Resource: "jobs"}: {Prepare: generateSelector, Validate: job},

	{Resource: "podtemplates"}:               {Validate: templateAt("template")},
	{Resource: "replicationcontrollers"}:     {Validate: templateAt("spec", "template")},
	{Group: "apps", Resource: "replicasets"}: {Validate: templateAt("spec", "template")},
	{Group: "apps", Resource: "deployments"}: {Validate: templateAt("spec", "template")},
	{Group: "apps", Resource: "daemonsets"}:  {Validate: templateAt("spec", "template")},
	{Group: "batch", Resource: "cronjobs"}:   {Validate: templateAt("spec", "jobTemplate", "spec", "template")},

	{Resource: "events"}:                                                   {Validate: event},
	{Group: "events.k8s.io", Resource: "events"}:                           {Validate: eventV1},
	{Group: "discovery.k8s.io", Resource: "endpointslices"}:                {Prepare: dropTopology, ValidateClients: sliceAddresses},
	{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}: {Validate: signingRequest},

	{Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations"}: {Validate: webhooks},
	{Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations"}:   {Validate: webhooks},
}

// All are the rules of all resources that have some.
func All() map[schema.GroupResource]*Rules { return byResource }
