// Package measure has what those who measure have in common beside their client: a
// clock, the times at which an open loop sends ([Pace]), and distributions of
// times ([Histogram], [Latency]).
package measure
