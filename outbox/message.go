package outbox

import (
	"cmp"
	"context"
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

// message appends the JSON object that the relay reads. The payload stays as it is: its size
// was checked.
func (c *encoder) message(b []byte, headers map[string]string) []byte {
	member := func(name, value string) {
		b = append(append(append(b, ",\""...), name...), "\":"...)
		b = appendQuoted(b, value)
	}
	b = append(b, `{"id":"`...)
	b = append(append(b, c.row.cells[roleID].String...), '"')
	member("aggregateType", c.event.AggregateType)
	member("aggregateId", c.event.AggregateID)
	if c.event.Type != "" {
		member("type", c.event.Type)
	}
	b = append(b, `,"payload":`...)
	if payload := &c.row.cells[rolePayload]; payload.Null {
		b = append(b, "null"...)
	} else {
		b = append(b, payload.String...)
	}
	if len(headers) > 0 {
		b = appendObject(append(b, `,"headers":`...), headers)
	}
	if c.parent != "" {
		b = appendObject(append(b, `,"traceparent":`...), c.traceHeaders())
	}
	return append(b, '}')
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
		headers := e.Headers
		if e.IdempotencyKey != "" {
			headers = make(map[string]string, len(e.Headers)+1)
			maps.Copy(headers, e.Headers)
			headers["idempotency_key"] = e.IdempotencyKey
		}
		ids[i], bodies[i].String, sizes[i] = c.row.id, string(c.message(make([]byte, 0, c.row.bytes+64), headers)), c.row.bytes
	}
	b := encoded{sizes: sizes}
	for from := 0; from < len(events); {
		to := b.statementEnd(from)
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
