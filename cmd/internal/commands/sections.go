package commands

import "github.com/quorate/quorate/internal/cli"

// sections are the settings of a node as its help groups them.
var sections = []cli.Section{
	{Title: "Node", Flags: []string{"name", "data-dir", "api-address", "api-advertise-address", "peer-address", "peer-advertise-address", "tls-san"}},
	{Title: "Cluster", Flags: []string{"bootstrap-expect", "join", "token-file", "join-token", "nonvoter", "promote-after", "remove-nonvoter-after", "control-plane-endpoint", "component-kubeconfigs"}},
	{Title: "Raft and storage", Flags: []string{
		"heartbeat-timeout", "election-timeout", "leader-lease-timeout", "no-leader-timeout", "hung-disk-timeout",
		"storage-bytes", "disk-reserve-bytes", "history-retention", "history-max-bytes", "snapshot-interval", "snapshot-entries", "trailing-logs", "snapshot-log-max-bytes",
	}},
	{Title: "API", Flags: []string{
		"runtime-config", "feature-gates", "service-cluster-ip-range", "service-node-port-range", "event-ttl", "enable-garbage-collector",
		"enable-priority-and-fairness", "max-requests-inflight", "max-mutating-requests-inflight", "max-connections", "http2-max-streams-per-connection", "http2-server", "goaway-chance",
	}},
	{Title: "Authentication", Flags: []string{
		"client-ca-file", "anonymous-auth", "enable-bootstrap-token-auth",
		"service-account-issuer", "api-audiences", "service-account-jwks-uri", "service-account-max-token-expiration",
	}},
	{Title: "Authorization", Flags: []string{"authorization-mode"}},
	{Title: "Audit", Flags: []string{"audit-policy-file", "audit-log-path", "audit-log-maxsize", "audit-log-maxbackup", "audit-log-maxage"}},
	{Title: "Admission", Flags: []string{
		"enable-admission-plugins", "disable-admission-plugins", "admission-control-config-file",
		"default-not-ready-toleration-seconds", "default-unreachable-toleration-seconds",
	}},
	{Title: "Controllers", Flags: []string{"controllers", "cluster-signing-duration"}},
	{Title: "Aggregation and egress", Flags: []string{
		"proxy-client-cert-file", "proxy-client-key-file", "requestheader-client-ca-file", "aggregator-reject-forwarding-redirect",
		"enable-aggregator-routing", "egress-selector-config-file", "egress-tunnels",
	}},
	{Title: "Kubelet", Flags: []string{
		"kubelet-preferred-address-types", "kubelet-timeout", "kubelet-client-certificate", "kubelet-client-key", "kubelet-certificate-authority",
	}},
	{Title: "Shutdown", Flags: []string{"shutdown-delay-duration", "shutdown-send-retry-after", "shutdown-grace"}},
	{Title: "Log, metrics and debugging", Flags: []string{"log-format", "log-level", "show-hidden-metrics-for-version", "livez-grace-period", "profiling"}},
}
