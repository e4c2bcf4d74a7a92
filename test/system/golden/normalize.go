package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// What differs from run to run, and what stands for it, wherever it occurs in a text.
var replaced = []struct {
	pattern *regexp.Regexp
	by      string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "<uid>"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "<time>"},
	{regexp.MustCompile(`eyJ[\w-]+\.[\w-]+\.[\w-]+`), "<token>"},
	{regexp.MustCompile(`kube-api-access-[a-z0-9]{5}\b`), "kube-api-access-<random>"},
	{regexp.MustCompile(`127\.0\.0\.1:\d{2,5}`), "127.0.0.1:<port>"},
}

func normalText(s string) string {
	for _, r := range replaced {
		s = r.pattern.ReplaceAllString(s, r.by)
	}
	return s
}

// age is how old an object is, in a cell of a table: a slow machine prints the next second.
var age = regexp.MustCompile(`^\d+s$`)

// normalFields are fields whose value differs from run to run, and what stands for it. Empty
// ones, and those that say that there is none, are left.
var normalFields = map[string]string{
	"resourceVersion": "<version>",
	"caBundle":        "<ca>",
	"continue":        "<continue>",
	"clusterIP":       "<ip>",
	"nodePort":        "<port>",
}

// normalize replaces what differs from run to run in a decoded body.
func normalize(v any) any {
	switch v := v.(type) {
	case string:
		return normalText(v)
	case []any:
		for i := range v {
			v[i] = normalize(v[i])
		}
	case map[string]any:
		normalizeName(v)
		for name, value := range v {
			v[name] = normalField(name, value)
		}
	}
	return v
}

// normalizeName replaces what was added to a generateName.
func normalizeName(meta map[string]any) {
	prefix, _ := meta["generateName"].(string)
	name, _ := meta["name"].(string)
	if prefix != "" && strings.HasPrefix(name, prefix) && len(name) == len(prefix)+5 {
		meta["name"] = prefix + "<random>"
	}
}

func normalField(name string, value any) any {
	switch by := normalFields[name]; {
	case by != "" && value != nil && value != "" && value != "None" && value != "0":
		return by
	case name == "clusterIPs":
		ips, _ := value.([]any)
		for i := range ips {
			ips[i] = normalField("clusterIP", ips[i])
		}
		return value
	case name == "cells":
		cells, _ := value.([]any)
		for i := range cells {
			if text, ok := cells[i].(string); ok && age.MatchString(text) {
				cells[i] = "<age>"
			}
		}
	case name == "managedFields":
		entries, _ := value.([]any)
		for i := range entries {
			entries[i] = managedLine(entries[i])
		}
		// Their order is that of their times, which may be the same second or not.
		slices.SortFunc(entries, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		return value
	}
	return normalize(value)
}

// managedLine is an entry of managedFields as one line.
func managedLine(entry any) any {
	e, ok := entry.(map[string]any)
	if !ok {
		return entry
	}
	line := fmt.Sprintf("%v %v %v", e["manager"], e["operation"], e["apiVersion"])
	if sub, ok := e["subresource"]; ok {
		line += fmt.Sprintf(" %v", sub)
	}
	return line + " " + normalText(jsonOf(e["fieldsV1"]))
}
