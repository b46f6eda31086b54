package outbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
)

// The members of a message that the relay reads, as columns.
var messageShape = Shape{
	Preset:         "of a message",
	ID:             Column{Name: "id", Type: "text"},
	Route:          Column{Name: "aggregateType", Type: "text"},
	Key:            Column{Name: "aggregateId", Type: "text"},
	Type:           Column{Name: "type", Type: "text", Nullable: true},
	Payload:        Column{Name: "payload", Type: "json", Nullable: true},
	Headers:        Column{Name: "headers", Type: "json", Nullable: true},
	Trace:          Column{Name: "traceparent", Type: "json", Nullable: true},
	IdempotencyKey: Column{Name: "idempotency_key", Type: "text", Nullable: true},
	TopicTemplate:  "${aggregateType}-events",
}

func (w *Writer) configureMessage() error {
	switch {
	case w.cfg.Table != "" || !w.cfg.Shape.empty():
		return errors.New("Table or Shape is set, and Store is Message, which writes into no table")
	case w.cfg.SkipDuplicates:
		return errors.New("SkipDuplicates is set, and Store is Message, which finds none")
	}
	w.cfg.MessagePrefix = cmp.Or(w.cfg.MessagePrefix, "outbox")
	if !validText(w.cfg.MessagePrefix) {
		return errors.New("MessagePrefix is not UTF-8, or has a zero byte")
	}
	w.name = "messages " + w.cfg.MessagePrefix
	shape := messageShape
	if err := w.shape(&shape); err != nil {
		return err
	}
	var err error
	w.topic, err = parseTemplate(cmp.Or(w.cfg.Topic, shape.TopicTemplate), &w.columns)
	return err
}

// message is the JSON object that the relay reads.
type message struct {
	ID            string            `json:"id"`
	AggregateType string            `json:"aggregateType"`
	AggregateID   string            `json:"aggregateId"`
	Type          string            `json:"type,omitempty"`
	Payload       json.RawMessage   `json:"payload"`
	Headers       map[string]string `json:"headers,omitempty"`
	Trace         map[string]string `json:"traceparent,omitempty"`
}

// emit writes messages. The relay reads no idempotency key of them, so it goes among the
// headers, where a consumer looks for it.
func (w *Writer) emit(ctx context.Context, tx Tx, events []Event) (Written, error) {
	ids, bodies, sizes := make([]UUID, len(events)), make([]Text, len(events)), make([]int, len(events))
	c := w.encoder(ctx)
	for i := range events {
		e := &events[i]
		if refused := c.encode(e); refused != nil {
			return Written{}, refused.at(i)
		}
		m := message{
			ID: c.row.cells[roleID].String, AggregateType: e.AggregateType, AggregateID: e.AggregateID, Type: e.Type,
			Payload: json.RawMessage("null"), Headers: e.Headers, Trace: c.traceHeaders(),
		}
		if payload := &c.row.cells[rolePayload]; !payload.Null {
			m.Payload = json.RawMessage(payload.String)
		}
		if e.IdempotencyKey != "" {
			m.Headers = make(map[string]string, len(e.Headers)+1)
			maps.Copy(m.Headers, e.Headers)
			m.Headers["idempotency_key"] = e.IdempotencyKey
		}
		ids[i], bodies[i].String, sizes[i] = c.row.id, string(mustJSON(m)), c.row.bytes
	}
	b := encoded{sizes: sizes}
	for from := 0; from < len(events); {
		to := b.piece(from)
		s := Statement{emitMany, []any{w.cfg.MessagePrefix, &Array{bodies[from:to]}}}
		if to-from == 1 {
			s = Statement{emitOne, []any{w.cfg.MessagePrefix, bodies[from].String}}
		}
		if err := tx.Run(ctx, []Statement{s}, func(func(...any) error) error { return nil }); err != nil {
			return Written{}, w.explained(err)
		}
		from = to
	}
	return Written{IDs: ids}, nil
}
