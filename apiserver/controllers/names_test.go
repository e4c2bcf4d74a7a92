package controllers

import (
	"fmt"
	"strings"
	"testing"
)

func TestSelect(t *testing.T) {
	for list, want := range map[string]string{
		"*":                            "[namespace-controller garbage-collector-controller event-ttl-controller serviceaccount-controller kubernetes-service-controller]",
		"*,-garbage-collector":         "[namespace-controller event-ttl-controller serviceaccount-controller kubernetes-service-controller]",
		"-garbage-collector,*":         "[namespace-controller event-ttl-controller serviceaccount-controller kubernetes-service-controller]",
		"*,-garbagecollector":          "[namespace-controller event-ttl-controller serviceaccount-controller kubernetes-service-controller]",
		"-namespace-controller":        "[garbage-collector-controller event-ttl-controller serviceaccount-controller kubernetes-service-controller]",
		"-namespace,event-ttl":         "[event-ttl-controller]",
		"namespace":                    "[namespace-controller]",
		"namespace,event-ttl":          "[namespace-controller event-ttl-controller]",
		"":                             "[]",
		"*,-podgc":                     `"podgc" is not in the list of known controllers: [namespace-controller garbage-collector-controller event-ttl-controller serviceaccount-controller kubernetes-service-controller]`,
		"namespace,-namespace":         "namespace-controller is enabled and disabled",
		"namespace,namespace":          "[namespace-controller]",
		"*,-*":                         `"*" is not in the list of known controllers: [namespace-controller garbage-collector-controller event-ttl-controller serviceaccount-controller kubernetes-service-controller]`,
		"garbage-collector-controller": "[garbage-collector-controller]",
		"serviceaccount":               "[serviceaccount-controller]",
		"*,-kubernetes-service,-serviceaccount-controller": "[namespace-controller garbage-collector-controller event-ttl-controller]",
	} {
		var items []string
		if list != "" {
			items = strings.Split(list, ",")
		}
		names, err := Select(items)
		got := fmt.Sprint(names)
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %s, want %s", list, got, want)
		}
	}
}
