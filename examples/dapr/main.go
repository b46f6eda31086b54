// A subscriber behind a Dapr sidecar, which keeps a ledger of orders: one line for each event,
// whatever is delivered twice.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"log"
	"log/slog"
	"net/http"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/inbox/pgxinbox"
)

// event is the CloudEvent that the relay wrote, as the sidecar posts it.
type event struct {
	ID      string `json:"id"`
	Type    string `json:"type"`
	Subject string `json:"subject"` // the aggregate's id
	Topic   string `json:"topic"`   // added by Dapr
	Data    amount `json:"data"`
}

type amount struct {
	Amount int `json:"amount"`
}

func cloudEvent(r *http.Request) (e event, err error) {
	err = json.NewDecoder(r.Body).Decode(&e)
	return e, err
}

// rawPayload is an event of Dapr's own around the value of a record, with another id at each
// delivery. The id, the type and the key are the record's: Dapr makes HTTP headers of them.
func rawPayload(r *http.Request) (e event, err error) {
	var envelope struct {
		Topic string `json:"topic"`
		Value []byte `json:"data_base64"`
	}
	if err := json.NewDecoder(r.Body).Decode(&envelope); err != nil {
		return e, err
	}
	e = event{ID: r.Header.Get("id"), Type: r.Header.Get("eventType"), Subject: r.Header.Get("__key"), Topic: envelope.Topic}
	err = json.Unmarshal(envelope.Value, &e.Data)
	return e, err
}

type subscriber struct {
	db   *pgxpool.Pool
	box  *inbox.Inbox
	read func(*http.Request) (event, error)
}

// ServeHTTP answers SUCCESS for what is done, now or before, and RETRY for everything else. It never
// answers DROP: what Dapr drops is lost.
func (s *subscriber) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	status := "SUCCESS"
	if err := s.receive(r); err != nil {
		slog.Warn("event failed; Dapr delivers it again", "error", err)
		status = "RETRY"
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]string{"status": status})
}

func (s *subscriber) receive(r *http.Request) error {
	e, err := s.read(r) // the CloudEvent
	if err != nil {
		return err
	}
	return pgx.BeginFunc(r.Context(), s.db, func(tx pgx.Tx) error {
		_, err := s.box.Once(r.Context(), pgxinbox.Tx(tx), inbox.ByID(e.Topic, e.ID), func(ctx context.Context) error {
			_, err := tx.Exec(ctx, `INSERT INTO ledger (order_id, event, amount) VALUES ($1, $2, $3)`, e.Subject, e.Type, e.Data.Amount)
			return err
		})
		return err
	})
}

func main() {
	db, err := pgxpool.New(context.Background(), os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	box, err := inbox.New(inbox.Config{Consumer: "billing"}) // no other handler has this name
	if err != nil {
		log.Fatal(err)
	}
	http.Handle("POST /orders", &subscriber{db, box, cloudEvent})
	http.Handle("POST /raw", &subscriber{db, box, rawPayload})
	log.Fatal(http.ListenAndServe(cmp.Or(os.Getenv("LISTEN"), "localhost:8090"), nil))
}
