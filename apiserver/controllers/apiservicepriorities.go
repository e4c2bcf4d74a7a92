package controllers

import (
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
)

// apiServicePriority is where a group stands among groups, and a version in its group.
type apiServicePriority struct{ group, version int32 }

// customPriority is that of the versions of custom resources.
var customPriority = apiServicePriority{1000, 100}

// apiServicePriorities are upstream's of the versions that are built in here. One that is not here
// has no APIService.
var apiServicePriorities = map[apischema.GroupVersion]apiServicePriority{
	{Version: "v1"}:                                             {18000, 1},
	{Group: "apps", Version: "v1"}:                              {17800, 15},
	{Group: "events.k8s.io", Version: "v1"}:                     {17750, 15},
	{Group: "authentication.k8s.io", Version: "v1"}:             {17700, 15},
	{Group: "authorization.k8s.io", Version: "v1"}:              {17600, 15},
	{Group: "autoscaling", Version: "v1"}:                       {17500, 15},
	{Group: "autoscaling", Version: "v2"}:                       {17500, 30},
	{Group: "batch", Version: "v1"}:                             {17400, 15},
	{Group: "certificates.k8s.io", Version: "v1"}:               {17300, 15},
	{Group: "certificates.k8s.io", Version: "v1beta1"}:          {17300, 9},
	{Group: "networking.k8s.io", Version: "v1"}:                 {17200, 15},
	{Group: "networking.k8s.io", Version: "v1beta1"}:            {17200, 9},
	{Group: "policy", Version: "v1"}:                            {17100, 15},
	{Group: "rbac.authorization.k8s.io", Version: "v1"}:         {17000, 15},
	{Group: "storage.k8s.io", Version: "v1"}:                    {16800, 15},
	{Group: "storage.k8s.io", Version: "v1beta1"}:               {16800, 9},
	{Group: "apiextensions.k8s.io", Version: "v1"}:              {16700, 15},
	{Group: "admissionregistration.k8s.io", Version: "v1"}:      {16700, 15},
	{Group: "admissionregistration.k8s.io", Version: "v1beta1"}: {16700, 12},
	{Group: "scheduling.k8s.io", Version: "v1"}:                 {16600, 15},
	{Group: "coordination.k8s.io", Version: "v1"}:               {16500, 15},
	{Group: "coordination.k8s.io", Version: "v1beta1"}:          {16500, 13},
	{Group: "node.k8s.io", Version: "v1"}:                       {16300, 15},
	{Group: "resource.k8s.io", Version: "v1"}:                   {16200, 21},
	{Group: "discovery.k8s.io", Version: "v1"}:                  {16200, 15},
	{Group: "flowcontrol.apiserver.k8s.io", Version: "v1"}:      {16100, 21},
	{Group: "quorate.io", Version: "v1"}:                        customPriority, // upstream has no such group
}
