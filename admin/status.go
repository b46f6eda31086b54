package admin

import (
	"encoding/json"
	"net/http"
)

func (a *api) statusJSON(w http.ResponseWriter, _ *http.Request) {
	s := a.status()
	if s.Topics == nil {
		s.Topics = []string{} // a list in JSON, also when empty
	}
	body, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		http.Error(w, "encode status: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(body, '\n'))
}
