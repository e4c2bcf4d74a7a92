// Package hostile attacks a cluster: with broken requests and frames, silent
// connections, and more requests than it can serve. Other users are served meanwhile, in
// time, and nothing is left when the attacker has gone.
package hostile
