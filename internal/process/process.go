// Package process says which process answers at a port: a node serves it, and a playground that has
// started one on this machine tells it from another that has the port.
package process

import (
	"encoding/json"
	"net/http"
	"os"
	"time"
)

// Path is where a node serves it. Who may ask is a matter of roles.
const Path = "/quorate/v1/process"

// Info is the answer. Fields are added, never changed.
type Info struct {
	Name    string    `json:"name"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	Version string    `json:"version"`
}

// Serve serves Path: this process, which starts now.
func Serve(name, version string) http.Handler {
	b, err := json.Marshal(Info{Name: name, PID: os.Getpid(), Started: time.Now().UTC(), Version: version})
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(append(b, '\n'))
	})
}
