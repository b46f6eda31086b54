package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/admin"
	"github.com/cdc-relay/cdc-relay/relay/status"
)

// The page names a table as PostgreSQL has it; the configuration has it with the quotes of SQL.
func TestConsole_ExplainsATableWithAnyName(t *testing.T) {
	const name = `"Shop.EU"."Outbox ""new""/2"`
	db, env := shop(t, `CREATE SCHEMA "Shop.EU"; CREATE TABLE `+name+` (id uuid PRIMARY KEY, aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text NOT NULL, payload jsonb NOT NULL);
		CREATE PUBLICATION cdc_relay FOR TABLE `+name+` WITH (publish = 'insert')`, "CDC_RELAY_OUTBOX_TABLE="+name)
	a := &app{process: process{stdout: io.Discard, stderr: io.Discard, env: append(env, "HOME=/nonexistent")}}
	cfg, err := a.load()
	if err != nil {
		t.Fatal(err)
	}
	show := func() status.Status { return status.Status{} }
	tools := a.consoleTools(cfg, cfg.Relay(), nil)
	console := admin.NewConsole(show, tools, 0)
	handler := admin.HandlerWithConsole(admin.Config{Listen: "127.0.0.1:8080"}, show, http.NotFoundHandler(), console)
	ask := func(path string, into any) int {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Host = "localhost:8080"
		handler.ServeHTTP(w, r)
		if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
			t.Errorf("%s: %v: %s", path, err, w.Body)
		}
		return w.Code
	}
	var list struct{ Tables []status.Flow }
	if code := ask("/api/v1/tables", &list); code != http.StatusOK || len(list.Tables) != 1 || list.Tables[0].Name != `Shop.EU.Outbox "new"/2` {
		t.Fatalf("%d %+v", code, list)
	}
	var got struct {
		Detail string
		Tables []struct {
			Table, Error string
			Columns      []any
		}
	}
	if code := ask("/api/v1/tables/"+url.PathEscape(list.Tables[0].Name)+"/explain", &got); code != http.StatusOK || len(got.Tables) != 1 || got.Tables[0].Error != "" || len(got.Tables[0].Columns) != 5 {
		t.Errorf("%d %+v", code, got)
	}
	db.Exec(t, "INSERT INTO "+name+" VALUES ('00000000-0000-0000-0000-000000000001', 'order', 'a', 'OrderPlaced', '{\"note\": \"4711\"}')")
	for _, values := range []bool{false, true} {
		found, err := tools.Explain(t.Context(), list.Tables[0].Name, values)
		text, _ := json.Marshal(found)
		if err != nil || strings.Contains(string(text), "4711") != values {
			t.Errorf("with values %t: %v %s", values, err, text)
		}
	}
}
