// Package reads proves what every read returns, on each node and in each state of
// it. The promises stand in tables: testdata/matrix.txt decides every combination of the
// parameters, cutoff.txt the read modes without a quorum, tokens.txt and versions.txt what
// continue tokens and resourceVersions may look like. The tests share one cluster
// (cluster.SharedReaders), of which a non-voter hears the leader through a link that can
// be made long.
package reads
