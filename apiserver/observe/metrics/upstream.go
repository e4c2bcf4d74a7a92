package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/component-base/metrics/legacyregistry"
)

// ofLibraries are the families that upstream's libraries count by themselves, in the registry of
// the process: those of admission and egress that /metrics has, too. Sorted. What a library counts of
// other things stays out: it would be said twice, or not be true of this server. Nodes of
// one process (quoratetest) share these series.
var ofLibraries = []string{
	"apiserver_admission_match_condition_evaluation_errors_total",
	"apiserver_admission_match_condition_evaluation_seconds",
	"apiserver_admission_match_condition_exclusions_total",
	"apiserver_admission_webhook_admission_duration_seconds",
	"apiserver_admission_webhook_fail_open_count",
	"apiserver_admission_webhook_rejection_count",
	"apiserver_admission_webhook_request_total",
	"apiserver_cel_compilation_duration_seconds",
	"apiserver_cel_evaluation_duration_seconds",
	"apiserver_egress_dialer_dial_duration_seconds",
	"apiserver_egress_dialer_dial_failure_count",
	"apiserver_egress_dialer_dial_start_total",
	"apiserver_manifest_admission_config_controller_automatic_reload_last_timestamp_seconds",
	"apiserver_manifest_admission_config_controller_automatic_reloads_total",
	"apiserver_manifest_admission_config_controller_last_config_info",
	"apiserver_mutating_admission_policy_check_duration_seconds",
	"apiserver_mutating_admission_policy_check_total",
	"apiserver_validating_admission_policy_check_duration_seconds",
	"apiserver_validating_admission_policy_check_total",
	"pod_security_errors_total",
	"pod_security_evaluations_total",
	"pod_security_exemptions_total",
}

// gatherLibraries reads the families of ofLibraries that have series.
func gatherLibraries() ([]*dto.MetricFamily, error) {
	families, err := legacyregistry.DefaultGatherer.Gather()
	return slices.DeleteFunc(families, func(f *dto.MetricFamily) bool {
		_, ok := slices.BinarySearch(ofLibraries, f.GetName())
		return !ok
	}), err
}

// gatherers are what /metrics shows.
func (m *Metrics) gatherers() prometheus.Gatherer {
	return classified(prometheus.Gatherers{m.registry, prometheus.GathererFunc(gatherLibraries)})
}
