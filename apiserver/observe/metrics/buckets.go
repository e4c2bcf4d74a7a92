package metrics

import "github.com/prometheus/client_golang/prometheus"

// Bucket bounds, in seconds unless said otherwise. Recording rules of the widely
// used dashboards ask for le="1", "5" and "30" by name.
var (
	sliBuckets = []float64{0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60}
	// requestBuckets are those of the SLI with two finer ones in front.
	requestBuckets    = append([]float64{0.005, 0.025}, sliBuckets...)
	responseBuckets   = prometheus.ExponentialBuckets(1000, 10, 7)   // bytes
	eventBuckets      = prometheus.ExponentialBuckets(1024, 2, 8)    // bytes
	diskBuckets       = prometheus.ExponentialBuckets(0.001, 2, 14)  // fsync and commit
	peerBuckets       = prometheus.ExponentialBuckets(0.0001, 2, 16) // round trips
	delayBuckets      = prometheus.ExponentialBuckets(0.0005, 2, 14) // waits for a processor
	readIndexBuckets  = prometheus.ExponentialBuckets(0.0001, 2, 16) // a round trip and a wait
	turnBuckets       = prometheus.ExponentialBuckets(0.001, 4, 8)   // up to 16 s
	stalenessBuckets  = []float64{0, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3600}
	versionsBuckets   = []float64{0, 1, 10, 100, 1000, 10000, 100000} // log entries
	expirationBuckets = []float64{0, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 345600, 604800, 2592000, 7776000, 15552000, 31104000}
)
