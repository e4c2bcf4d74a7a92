package validation

import "maps"

// all are the kinds, by CodeName.
var all = func() map[string]Kind {
	m := map[string]Kind{}
	for _, group := range []map[string]Kind{
		coreKinds, appsKinds, batchKinds, networkingKinds, storageKinds, resourceKinds, rbacKinds,
		admissionKinds, clusterKinds, aggregationKinds, quorateKinds,
	} {
		maps.Copy(m, group)
	}
	return m
}()
