package printers

import "github.com/quorate/quorate/apiserver/types/tree"

// serviceOrLocal is the Service of an APIService. One that has none is the server's own.
func serviceOrLocal(service any) any {
	if service == nil {
		return "Local"
	}
	return tree.Scalar(get(service, "namespace")) + "/" + tree.Scalar(get(service, "name"))
}

// availability is the condition Available of an APIService, with the reason if it is not met.
func availability(conditions any) any {
	c := condition(items(conditions), "Available")
	if c == nil {
		return "Unknown"
	}
	text := tree.Scalar(get(c, "status"))
	if reason := tree.Scalar(get(c, "reason")); text != "True" && reason != "" {
		text += " (" + reason + ")"
	}
	return text
}
