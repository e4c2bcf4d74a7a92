// Package quota is what ResourceQuotas are about: what an object uses, and what a quota bounds,
// as amounts that the state machine can add up (proto.Usage and proto.Limit), and as quantities
// for people. The state machine knows neither Pods nor quotas; this package is all that does.
//
// The types to know:
//
//   - List is amounts of resources by name, as quantities. Pod, Service, PersistentVolumeClaim
//     and ResourceClaim make one of an object; UsageOf makes an entry's proto.Usage of it.
//   - Resource is a name in the spec.hard of a quota: what of an object it bounds.
//   - LimitsOf makes a version's proto.Limit of a quota, Status what is shown of it.
//
// Amounts are whole numbers: thousandths of cpu, whole units of everything else. What an object
// uses is rounded up once, after everything in it was added, and bounds are rounded down, so a
// sum that is within its bound in whole numbers is within it. What is above 2^63-1 is that.
//
// The functions are pure and read decoded objects; they are part of every write of a Pod.
package quota
