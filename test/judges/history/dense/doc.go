// Package dense tells a history as judges of other projects want to be told: etcd's model and
// upstream's count revisions without gaps from 1, the empty store, and every answer they are
// shown comes with the revision of the whole store.
//
//   - Revision n+1 is the nth version of the log that is judged, so that a write's revision is
//     one above the one before it. A resourceVersion in between, which other tables got, is
//     that of the newest version at or below it.
//   - Objects from before the log are versions before it.
//   - A write without an answer has taken effect if its value is in the log, and deletions that
//     nobody acknowledged are given to deletes without an answer, or without a revision in it.
//   - Answers of single objects and refusals do not say what the store's revision was. They get
//     the least one at which they are true and that real time allows: not below that of any
//     answer that came before their call. Of all the ways to choose, this one leaves the most
//     room: if it contradicts something, every other does. An answer that was true at no such
//     time gets the least that real time allows, where the judge sees that it is wrong.
//   - What says nothing of the state is left out: requests that failed, were refused for
//     another reason than the state, or read nothing.
//
// That is all that is decided here. Whether it fits is for the judges.
package dense
