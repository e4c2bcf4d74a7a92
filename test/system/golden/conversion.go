package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path"
)

// conversionSpec says how a conversion webhook answers.
type conversionSpec struct {
	// Fields is how the one field of the spec is called in each version.
	Fields map[string]string `json:"fields"`
	// Faults are answers to reviews of an object with the label "fault", by the label's value.
	Faults map[string]conversionFault `json:"faults"`
}

// conversionFault is what is wrong in an answer.
type conversionFault struct {
	Review   map[string]any `json:"review"`   // fields of the ConversionReview
	Response map[string]any `json:"response"` // fields of its response
	Object   map[string]any `json:"object"`   // fields of all converted objects
	Metadata map[string]any `json:"metadata"` // fields of their metadata; null takes one away
	Fewer    bool           `json:"fewer"`    // the last converted object is missing
	Code     int            `json:"code"`
	Body     string         `json:"body"` // instead of a ConversionReview
}

// conversionReview is the one that was sent.
type conversionReview struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Request    struct {
		UID               string           `json:"uid"`
		DesiredAPIVersion string           `json:"desiredAPIVersion"`
		Objects           []map[string]any `json:"objects"`
	} `json:"request"`
}

func (s *conversionSpec) serve(out http.ResponseWriter, r *http.Request) {
	var review conversionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request.UID == "" {
		http.Error(out, "not a ConversionReview", http.StatusBadRequest)
		return
	}
	var fault conversionFault
	for _, object := range review.Request.Objects {
		labels, _ := metadataOf(object)["labels"].(map[string]any)
		if f, ok := s.Faults[fmt.Sprint(labels["fault"])]; ok {
			fault = f
		}
	}
	if fault.Code != 0 {
		out.WriteHeader(fault.Code)
	}
	if fault.Code != 0 || fault.Body != "" {
		fmt.Fprint(out, fault.Body)
		return
	}
	converted := []any{} // which is not null
	for _, object := range review.Request.Objects {
		converted = append(converted, s.convert(object, review.Request.DesiredAPIVersion, fault))
	}
	if fault.Fewer {
		converted = converted[:len(converted)-1]
	}
	response := map[string]any{"uid": review.Request.UID, "convertedObjects": converted, "result": map[string]any{"status": "Success"}}
	maps.Copy(response, fault.Response)
	answer := map[string]any{"apiVersion": review.APIVersion, "kind": review.Kind, "response": response}
	maps.Copy(answer, fault.Review)
	out.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(out).Encode(answer) // the server sees that the connection ended
}

// convert returns an object in another version, with what a fault makes of it.
func (s *conversionSpec) convert(object map[string]any, to string, fault conversionFault) map[string]any {
	from := s.Fields[path.Base(fmt.Sprint(object["apiVersion"]))]
	if spec, ok := object["spec"].(map[string]any); ok {
		if value, ok := spec[from]; ok {
			delete(spec, from)
			spec[s.Fields[path.Base(to)]] = value
		}
	}
	object["apiVersion"] = to
	for name, value := range fault.Metadata {
		if meta := metadataOf(object); value == nil {
			delete(meta, name)
		} else {
			meta[name] = value
		}
	}
	for name, value := range fault.Object {
		if value == nil {
			delete(object, name)
		} else {
			object[name] = value
		}
	}
	return object
}

func metadataOf(object map[string]any) map[string]any {
	meta, _ := object["metadata"].(map[string]any)
	return meta
}
