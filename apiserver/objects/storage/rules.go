package storage

// MaxRulesChanged is how often one write is decided again because of changed rules before the
// caller is sent away: each round costs a log entry.
const MaxRulesChanged = 16
