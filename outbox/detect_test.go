package outbox

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

// catalog answers with columns: name, type, and with ! NOT NULL, with = a default.
type catalog []string

func (c catalog) Run(_ context.Context, statements []Statement, row func(func(...any) error) error) error {
	for _, column := range c {
		name, typ, _ := strings.Cut(column, " ")
		cells := []string{name, strings.Trim(typ, "!="), "false", "false"}
		if strings.Contains(typ, "!") {
			cells[2] = "true"
		}
		if strings.Contains(typ, "=") {
			cells[3] = "true"
		}
		err := row(func(into ...any) error {
			for i := range into {
				*into[i].(*string) = cells[i]
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func TestDetect_TakesTheShapeWithMostOfTheColumns(t *testing.T) {
	for name, c := range map[string]struct {
		columns catalog
		given   Shape
		want    []string // columns that are filled
	}{
		"ours": {columns: catalog{"id uuid!", "aggregate_type text!", "aggregate_id text!", "event_type text!", "payload jsonb!", "headers jsonb", "traceparent text", "created_at timestamp with time zone!=", "idempotency_key text"},
			want: []string{"id uuid", "aggregate_type text", "aggregate_id text", "event_type text", "payload jsonb", "headers jsonb", "traceparent text", "idempotency_key text"}},
		"ours from before, with other types": {columns: catalog{"id text!", "aggregate_type character varying(40)!", "aggregate_id uuid!", "event_type text!", "payload json!", "sent boolean!="},
			want: []string{"id text", "aggregate_type character varying(40)", "aggregate_id uuid", "event_type text", "payload json"}},
		"Debezium's": {columns: catalog{"id uuid!", "aggregatetype text!", "aggregateid text!", "type text!", "payload jsonb"},
			want: []string{"id uuid", "aggregatetype text", "aggregateid text", "type text", "payload jsonb"}},
		"a time that has no default": {columns: catalog{"id uuid!", "aggregatetype text!", "aggregateid text!", "type text!", "timestamp timestamp with time zone!", "payload text", "tracingspancontext text"},
			want: []string{"timestamp", "id uuid", "aggregatetype text", "aggregateid text", "type text", "payload text", "tracingspancontext text"}},
		"a number that the database makes": {columns: catalog{"id bigint!=", "event_type text!", "payload jsonb!"},
			want: []string{"id bigint generated", "event_type text", "payload jsonb"}},
		"one that is given": {columns: catalog{"no uuid!", "thing text!", "body text!", "note text"}, given: Shape{ID: Column{Name: "no", Type: "text"}, Key: Column{Name: "thing", Type: "text"}, Payload: Column{Name: "body", Type: "jsonb"}, Headers: Column{Name: "headers", Type: "jsonb", Nullable: true}, TopicTemplate: "orders"},
			want: []string{"no uuid", "thing text", "body text"}},
	} {
		w, err := Detect(context.Background(), c.columns, Config{Shape: c.given})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		shape := w.Shape()
		got := append([]string{}, shape.Now...)
		for _, c := range shape.parts() {
			if *c == (Column{}) {
				continue
			}
			text := c.Name + " " + c.Type
			if c.Generated {
				text += " generated"
			}
			got = append(got, text)
		}
		want := strings.Join(c.want, ", ")
		if text := strings.Join(got, ", "); sortedList(text) != sortedList(want) {
			t.Errorf("%s: %s\nwant %s", name, text, want)
		}
	}
}

func sortedList(s string) string {
	parts := strings.Split(s, ", ")
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

func TestDetect_RefusesATableThatNoWriterCanFill(t *testing.T) {
	ours := []string{"id uuid!", "aggregate_type text!", "aggregate_id text!", "event_type text!", "payload jsonb!"}
	given := Outbox()
	for name, c := range map[string]struct {
		columns catalog
		cfg     Config
		want    string
	}{
		"no table":                    {nil, Config{}, "detect table public.outbox: there is no such table; `cdc-relay setup --create-table` makes one"},
		"of no shape":                 {catalog{"a text", "b text"}, Config{}, "its columns a, b are those of no shape; set Config.Shape"},
		"a column that nobody fills":  {append(catalog{"tenant text!"}, ours...), Config{}, `column "tenant" is NOT NULL without a default, and shape outbox does not fill it`},
		"a type that no writer fills": {append(catalog{"id numeric!"}, ours[1:]...), Config{}, `type "numeric" is none that a writer fills`},
		"a shape that is another's":   {catalog{"id uuid!", "payload jsonb!"}, Config{Shape: given}, `it has no column "aggregate_type", which Config.Shape has`},
		"a trace without a column":    {ours, Config{Trace: func(context.Context, func(string, string)) {}}, "a Trace is set"},
		"messages":                    {ours, Config{Store: Message}, "Store is Message"},
		"a name":                      {ours, Config{Table: "a.b.c"}, "more than two parts"},
	} {
		if _, err := Detect(context.Background(), c.columns, c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v\nwant %s", name, err, c.want)
		}
	}
	for _, tx := range []Tx{nil, none{}} {
		if _, err := Detect(context.Background(), tx, Config{}); !errors.Is(err, ErrNoTransaction) {
			t.Errorf("no transaction: %v", err)
		}
	}
}
