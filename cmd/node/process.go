package main

import (
	"encoding/json"
	"net/http"
	"os"
	"time"
)

// processPath says which process answers. Who has started one on this machine can tell
// it from another that has the port. Who may ask is a matter of roles.
const processPath = "/quorate/v1/process"

// processInfo is the answer. Fields are added, never changed.
type processInfo struct {
	Name    string    `json:"name"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	Version string    `json:"version"`
}

// serveProcess serves processPath.
func serveProcess(name string) http.Handler {
	b, err := json.Marshal(processInfo{Name: name, PID: os.Getpid(), Started: time.Now().UTC(), Version: buildVersion()})
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(append(b, '\n'))
	})
}
