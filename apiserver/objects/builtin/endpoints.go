package builtin

import "github.com/quorate/quorate/apiserver/objects"

// endpointsStrategy is that of Endpoints. The node may write addresses that clients must
// not: those of members at a loopback address.
var endpointsStrategy = objects.Strategy{TrustsNode: true}
