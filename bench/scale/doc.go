// Package scale measures clusters at the sizes that others have published figures for
// (`quorate bench scale POINT`): how long they take to start, what they cost, and what another
// client's gets are like meanwhile, from a tenth of the size to all of it.
//
// A Point is what is to be there, and the rows that are measured. What is to be there is not
// created by requests, which would take longer than anything else: one object of each kind is,
// a backup of that is multiplied (disk.Multiply), and the cluster begins with it. The second and
// the third node join and are sent a snapshot, which is a row as well.
//
// While a row is measured, another client gets one and the same object, at random times (an
// open loop), Most Recent, from the node that the row does not ask first.
package scale
