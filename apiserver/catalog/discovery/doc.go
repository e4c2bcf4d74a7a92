// Package discovery tells clients what the server serves: /api, /apis and the
// documents of groups and versions below them, in the old form (one document per
// group version) and in the aggregated form (one document per root), and /version.
//
// Every document is rendered at most once per registry and format, and the bytes
// are shared by all requests. A registry is immutable, so its pointer is the
// cache's key.
package discovery
