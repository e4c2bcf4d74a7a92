// Package admission is what may change or refuse a write although the user may make it: the
// chain of plugins, in upstream's order and words. Each plugin is a package below this one;
// the table of all of them is package plugins, and what they read is package state.
//
// The types to know:
//
//   - Attributes are what a plugin is asked about: the object as it will be, and who asks.
//   - Mutator and Validator are what plugins are: one changes objects before they are
//     validated, the other looks at them when they are complete. A plugin may be both.
//   - Chain asks all plugins. Package objects calls it, at two places of a write.
//
// Attributes are also those of k8s.io/apiserver/pkg/admission, so that upstream's own plugins
// (webhooks, policies) can be asked as they are.
//
// A plugin holds no informer. It decides by what this node's state shows at that moment, and
// says which tables that were (Attributes.Consulted): the entry names them, and the state
// machine refuses it if one of them has changed since. So no write is admitted by a rule that
// was replaced before the write began, however far the node lags.
package admission
