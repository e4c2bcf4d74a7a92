// Package openapi serves the OpenAPI documents: /openapi/v3 and one document per
// group version below it, and /openapi/v2.
//
// Paths are generated from kinds.Resource, schemas come from package schema.
// Nothing is built before it is asked for; what was built is kept for as long as
// its resources are the same, and its bytes are shared: as JSON, as protobuf,
// and compressed. Documents of custom resources are known by their definitions'
// fingerprints, so that an index of thousands builds none of them. Documents are the same on every
// node that serves the same resources, so a client's cached copy is good on all of them.
//
// The handlers of kube-openapi are not used, only its encoders: those build under a
// lock, go through a typed tree twice, compress for each request, and answer
// an unknown group with an empty 200.
package openapi
