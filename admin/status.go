package admin

import (
	"encoding/json"
	"net/http"

	"github.com/cdc-relay/cdc-relay/relay/status"
)

// snapshot is the status as it is shown: lists are lists in JSON, also when empty.
func (a *api) snapshot() status.Status {
	s := a.status()
	if s.Topics == nil {
		s.Topics = []string{}
	}
	if s.Tables == nil {
		s.Tables = []status.Flow{}
	}
	if s.TopicRates == nil {
		s.TopicRates = []status.Flow{}
	}
	return s
}

func (a *api) statusJSON(w http.ResponseWriter, _ *http.Request) {
	body, err := json.MarshalIndent(a.snapshot(), "", "  ")
	if err != nil {
		http.Error(w, "encode status: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(body, '\n'))
}
