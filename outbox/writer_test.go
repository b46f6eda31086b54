package outbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
)

// fake is a transaction that keeps what it is given and writes all of it, but for the
// idempotency keys that it knows.
type fake struct {
	runs  [][]Statement
	known map[string]bool
	err   error
}

func (f *fake) Run(_ context.Context, statements []Statement, row func(func(...any) error) error) error {
	f.runs = append(f.runs, statements)
	if f.err != nil {
		return f.err
	}
	n := 1
	if a, ok := statements[0].Args[0].(*Array); ok {
		n = a.Len()
	}
	for i := range n {
		if f.known[f.arg(len(f.runs)-1, "idempotency_key", i)] {
			continue
		}
		id := f.arg(len(f.runs)-1, "id", i)
		if err := row(func(into ...any) error { *into[0].(**string) = &id; return nil }); err != nil {
			return err
		}
	}
	return nil
}

// arg is what a run writes into a column of our table; - is NULL.
func (f *fake) arg(run int, column string, i int) string {
	s := f.runs[run][0]
	_, list, _ := strings.Cut(s.SQL, "(")
	list, _, _ = strings.Cut(list, ")")
	at := slices.Index(strings.Split(list, ", "), `"`+column+`"`)
	if at < 0 {
		return "no column " + column
	}
	switch v := s.Args[at].(type) {
	case nil:
		return "-"
	case *string:
		return *v
	case *Array:
		if v.At(i).Null {
			return "-"
		}
		return v.At(i).String
	}
	return fmt.Sprintf("%T", s.Args[at])
}

func writer(t testing.TB, cfg Config) *Writer {
	t.Helper()
	w, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func placed(id string) Event {
	return Event{AggregateType: "order", AggregateID: id, Type: "OrderPlaced", Payload: map[string]int{"n": 1}}
}

func TestWrite_OneEventIsAPlainInsert(t *testing.T) {
	tx := &fake{}
	e := placed("o-1")
	e.ID = UUID{1}
	e.Headers = map[string]string{"tenant": "acme"}
	written, err := writer(t, Config{}).Write(t.Context(), tx, e)
	if err != nil || len(written.IDs) != 1 || written.IDs[0] != e.ID || written.Duplicates != nil {
		t.Fatalf("%+v, %v", written, err)
	}
	want := `INSERT INTO "public"."outbox" ("id", "aggregate_type", "aggregate_id", "event_type", "payload", "headers", "traceparent", "idempotency_key") ` +
		`VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`
	if got := tx.runs[0][0].SQL; got != want+` ON CONFLICT DO NOTHING RETURNING "id"::text` {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if _, err := writer(t, Config{}).Write(t.Context(), tx, placed("o-1")); err != nil || tx.runs[1][0].SQL != want {
		t.Errorf("what cannot be a duplicate: %v, %s", err, tx.runs[1][0].SQL)
	}
	for column, want := range map[string]string{
		"id": "01000000-0000-0000-0000-000000000000", "aggregate_type": "order", "aggregate_id": "o-1", "event_type": "OrderPlaced", "payload": `{"n":1}`,
		"headers": `{"tenant":"acme"}`, "traceparent": "-", "idempotency_key": "-",
	} {
		if got := tx.arg(0, column, 0); got != want {
			t.Errorf("%s: %s, want %s", column, got, want)
		}
	}
}

func TestWrite_ManyEventsAreOneStatementInTheirOrder(t *testing.T) {
	tx := &fake{}
	var events []Event
	for i := range 2500 {
		events = append(events, placed(fmt.Sprint(i)))
	}
	written, err := writer(t, Config{}).Write(t.Context(), tx, events...)
	if err != nil || len(written.IDs) != len(events) {
		t.Fatal(len(written.IDs), err)
	}
	at := 0
	for run := range tx.runs {
		if !strings.Contains(tx.runs[run][0].SQL, " WITH ORDINALITY AS e(c1, c2, c3, c4, c5, c6, c7, c8, n) ORDER BY n") {
			t.Fatal(tx.runs[run][0].SQL)
		}
		n := tx.runs[run][0].Args[0].(*Array).Len()
		for i := range n {
			if got := tx.arg(run, "aggregate_id", i); got != fmt.Sprint(at) || tx.arg(run, "id", i) != written.IDs[at].String() {
				t.Fatalf("event %s at place %d", got, at)
			}
			at++
		}
	}
	if len(tx.runs) != 3 || at != len(events) {
		t.Errorf("%d events in %d statements", at, len(tx.runs))
	}
}

func TestWrite_LargeEventsAreDivided(t *testing.T) {
	tx := &fake{}
	e := placed("a")
	e.Payload = strings.Repeat("x", 400_000)
	if _, err := writer(t, Config{}).Write(t.Context(), tx, e, e, e, e, e); err != nil || len(tx.runs) != 3 {
		t.Errorf("%d statements, %v", len(tx.runs), err)
	}
}

func TestWrite_NamesDuplicates(t *testing.T) {
	tx := &fake{known: map[string]bool{"k1": true, "k4": true}}
	var events []Event
	for i := range 5 {
		e := placed("o")
		e.IdempotencyKey = fmt.Sprintf("k%d", i)
		events = append(events, e)
	}
	written, err := writer(t, Config{}).Write(t.Context(), tx, events...)
	var duplicate *DuplicateError
	if !errors.As(err, &duplicate) || !slices.Equal(duplicate.Indexes, []int{1, 4}) || !slices.Equal(written.Duplicates, []int{1, 4}) || len(written.IDs) != 5 {
		t.Errorf("%+v, %v", written, err)
	}
	written, err = writer(t, Config{SkipDuplicates: true}).Write(t.Context(), tx, events...)
	if err != nil || !slices.Equal(written.Duplicates, []int{1, 4}) {
		t.Errorf("%+v, %v", written, err)
	}
	if got := (&DuplicateError{Indexes: []int{0, 1, 2, 3, 4, 5}}).Error(); !strings.Contains(got, "event 1, 2, 3, 3 more;") {
		t.Error(got)
	}
}

func TestWrite_DeletesInTheSameTransaction(t *testing.T) {
	w, tx := writer(t, Config{Store: DeleteRow}), &fake{}
	if _, err := w.Write(t.Context(), tx, placed("a")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(t.Context(), tx, placed("a"), placed("b")); err != nil {
		t.Fatal(err)
	}
	for run, want := range []string{`DELETE FROM "public"."outbox" WHERE "id" = $1`, `DELETE FROM "public"."outbox" WHERE "id" = ANY($1::text[]::uuid[])`} {
		if s := tx.runs[run]; len(s) != 2 || s[1].SQL != want || len(s[1].Args) != 1 || s[1].Args[0] != s[0].Args[0] {
			t.Errorf("%+v", s)
		}
	}
}

func TestWrite_TraceGoesWhereTheRelayReadsIt(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	trace := func(state string) func(context.Context, func(string, string)) {
		return func(_ context.Context, set func(string, string)) {
			set("traceparent", parent)
			set("baggage", "not written")
			if state != "" {
				set("tracestate", state)
			}
		}
	}
	column := Outbox()
	column.Headers = Column{}
	headers := Outbox()
	headers.Trace = Column{}
	structured := Outbox()
	structured.Trace.Type = "jsonb"
	for name, c := range map[string]struct {
		shape        Shape
		state        string
		column, want string
	}{
		"column":         {column, "", "traceparent", parent},
		"state":          {Outbox(), "a=b", "traceparent", `{"traceparent":"` + parent + `","tracestate":"a=b"}`},
		"jsonb":          {structured, "", "traceparent", `{"traceparent":"` + parent + `"}`},
		"headers":        {headers, "a=b", "headers", `{"tenant":"acme","traceparent":"` + parent + `","tracestate":"a=b"}`},
		"no room":        {DebeziumQuarkus(), "a=" + strings.Repeat("b", 200), "tracingspancontext", parent},
		"column, header": {Outbox(), "", "headers", `{"tenant":"acme"}`},
	} {
		tx := &fake{}
		e := placed("o")
		if c.shape.Headers != (Column{}) {
			e.Headers = map[string]string{"tenant": "acme"}
		}
		_, err := writer(t, Config{Shape: c.shape, Trace: trace(c.state)}).Write(t.Context(), tx, e)
		if err != nil || tx.arg(0, c.column, 0) != c.want {
			t.Errorf("%s: %v, %s, want %s", name, err, tx.arg(0, c.column, 0), c.want)
		}
	}
	// Without one a column that is NOT NULL has what its type takes.
	for kind, want := range map[string]string{"text": "", "json": "{}", "jsonb": "{}"} {
		shape, tx := Outbox(), &fake{}
		shape.Trace.Type, shape.Trace.Nullable = kind, false
		if _, err := writer(t, Config{Shape: shape}).Write(t.Context(), tx, placed("o")); err != nil || tx.arg(0, "traceparent", 0) != want {
			t.Errorf("%s: %v, %q", kind, err, tx.arg(0, "traceparent", 0))
		}
	}
	neither := Debezium()
	if _, err := New(Config{Shape: neither, Trace: trace("")}); err == nil || !strings.Contains(err.Error(), "ADD traceparent text") {
		t.Errorf("a table without a column for it: %v", err)
	}
}

const secret = "s3cret"

// What is refused would block the relay, or abort the transaction.
func TestWrite_RefusesBeforeAnyStatement(t *testing.T) {
	change := func(f func(e *Event)) Event { e := placed("o"); f(&e); return e }
	payload := func(p any) Event { return change(func(e *Event) { e.Payload = p }) }
	trace := func(_ context.Context, set func(string, string)) { set("traceparent", "\x00"+secret) }
	for name, c := range map[string]struct {
		cfg          Config
		event        Event
		field, words string
	}{
		"no route":         {Config{}, change(func(e *Event) { e.AggregateType = "" }), "aggregate type", "is empty"},
		"illegal topic":    {Config{}, change(func(e *Event) { e.AggregateType = "order " + secret }), "aggregate type", "Kafka does not allow"},
		"long topic":       {Config{}, change(func(e *Event) { e.AggregateType = strings.Repeat("a", 243) }), "aggregate type", "250 characters"},
		"dots":             {Config{Shape: GenericEvent()}, Event{AggregateID: "o", Type: "..", Payload: 1}, "type", "dots"},
		"configured topic": {Config{Topic: "sales ${event_type}"}, placed("o"), "aggregate type", "Kafka does not allow"},
		"no key":           {Config{}, change(func(e *Event) { e.AggregateID = "" }), "aggregate id", "is empty"},
		"no type":          {Config{}, change(func(e *Event) { e.Type = "" }), "type", "is empty"},
		"zero byte":        {Config{}, change(func(e *Event) { e.AggregateID = secret + "\x00" }), "aggregate id", "zero byte"},
		"bad UTF-8":        {Config{}, change(func(e *Event) { e.Type = secret + "\xff" }), "type", "UTF-8"},
		"bad key":          {Config{}, change(func(e *Event) { e.IdempotencyKey = secret + "\x00" }), "idempotency key", "zero byte"},
		"no column":        {Config{Shape: Debezium()}, change(func(e *Event) { e.IdempotencyKey = secret }), "idempotency key", "no column"},
		"no column for it": {Config{}, change(func(e *Event) { e.Topic = secret }), "topic", "no column"},
		"no headers":       {Config{Shape: Debezium()}, change(func(e *Event) { e.Headers = map[string]string{"a": secret} }), "headers", "no column"},
		"header id":        {Config{}, change(func(e *Event) { e.Headers = map[string]string{"id": secret} }), "headers", "called id"},
		"bad header":       {Config{}, change(func(e *Event) { e.Headers = map[string]string{"a": secret + "\x00"} }), "headers", "zero byte"},
		"bad trace":        {Config{Trace: trace}, placed("o"), "trace context", "zero byte"},
		"long trace": {Config{Shape: DebeziumQuarkus(), Trace: func(_ context.Context, set func(string, string)) { set("traceparent", strings.Repeat("a", 257)) }},
			change(func(e *Event) { e.Payload = []byte("1") }), "trace context", "256 characters"},
		"key of a uuid":       {Config{Shape: Polling()}, placed(secret), "aggregate id", "uuid"},
		"long value":          {Config{Shape: Polling()}, change(func(e *Event) { e.AggregateID = NewUUID().String(); e.Type = strings.Repeat("é", 101) }), "type", "100 characters"},
		"id of the database":  {Config{Shape: GenericSimple()}, Event{ID: UUID{1}, Type: "T", Payload: 1}, "id", "database makes"},
		"nil":                 {Config{}, payload(nil), "payload", "NOT NULL"},
		"text for JSON":       {Config{}, payload([]byte(secret)), "payload", "is not JSON"},
		"empty":               {Config{}, payload([]byte{}), "payload", "is not JSON"},
		"UTF-16":              {Config{}, payload([]byte("\"\xff\"")), "payload", "UTF-8"},
		"null character":      {Config{}, payload(secret + "\x00"), "payload", `\u0000`},
		"half a surrogate":    {Config{}, payload([]byte(`{"a":"\ud83d"}`)), "payload", "surrogate"},
		"other half":          {Config{}, payload([]byte(`{"\ude00":1}`)), "payload", "surrogate"},
		"large number":        {Config{}, payload([]byte(`[1e131073]`)), "payload", "number"},
		"small number":        {Config{}, payload([]byte(`[1e-16384]`)), "payload", "number"},
		"no encoding":         {Config{}, payload(math.NaN()), "payload", "float64"},
		"encoder":             {Config{Encode: func(any) ([]byte, error) { return nil, errors.New(secret) }}, payload(1), "payload", "int"},
		"too large":           {Config{}, payload(strings.Repeat("x", 1<<20)), "payload", "1048576"},
		"larger as jsonb":     {Config{MaxBytes: 1000}, payload([]byte("[" + strings.Repeat("1,", 300) + "1]")), "payload", "kafka.max_message_bytes"},
		"number of 900 bytes": {Config{MaxBytes: 1000}, payload([]byte("1e900")), "payload", "bytes"},
		"text":                {Config{Shape: DebeziumQuarkus()}, payload([]byte(secret + "\x00")), "payload", "zero byte"},
		"long text":           {Config{Shape: DebeziumQuarkus()}, payload([]byte(strings.Repeat("x", 8001))), "payload", "8000 characters"},
	} {
		tx := &fake{}
		_, err := writer(t, c.cfg).Write(t.Context(), tx, c.event)
		var refused *EventError
		if !errors.As(err, &refused) || refused.Field != c.field || !strings.Contains(refused.Reason, c.words) || refused.Index != 0 || len(tx.runs) > 0 {
			t.Errorf("%s: %v in %d runs; want the %s refused: %s", name, err, len(tx.runs), c.field, c.words)
		}
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the error shows the event: %v", name, err)
		}
	}
}

func TestWrite_OneBadEventStopsAll(t *testing.T) {
	tx, bad := &fake{}, placed("")
	_, err := writer(t, Config{}).Write(t.Context(), tx, placed("a"), placed("b"), bad)
	if err == nil || err.Error() != "write event 3: aggregate id: is empty" || len(tx.runs) > 0 {
		t.Errorf("%v, %d runs", err, len(tx.runs))
	}
	if written, err := writer(t, Config{}).Write(t.Context(), tx); err != nil || written.IDs != nil || len(tx.runs) > 0 {
		t.Errorf("no events: %v, %v", written, err)
	}
}

func TestWrite_AllowsWhatTheRelaySends(t *testing.T) {
	for name, c := range map[string]struct {
		cfg   Config
		event Event
	}{
		"longest topic":   {Config{}, Event{AggregateType: strings.Repeat("a", 242), AggregateID: "o", Type: "T", Payload: 1}},
		"filtered topic":  {Config{Topic: "${aggregate_type|topic}"}, Event{AggregateType: "an order", AggregateID: "o", Type: "T", Payload: 1}},
		"other column":    {Config{Topic: "${tenant}"}, Event{AggregateType: "an order", AggregateID: "o", Type: "T", Payload: 1}},
		"NULL":            {Config{Shape: Debezium()}, Event{AggregateType: "o", AggregateID: "o", Type: "T"}},
		"surrogates":      {Config{}, Event{AggregateType: "o", AggregateID: "o", Type: "T", Payload: []byte(`{"\ud83d\ude00":"\\u0000 \ud83d\ude00"}`)}},
		"largest number":  {Config{}, Event{AggregateType: "o", AggregateID: "o", Type: "T", Payload: []byte(`[1e131071, 1E-16383, -0, 0.5e+1]`)}},
		"no key":          {Config{Shape: GenericTopic()}, Event{Topic: "orders", Payload: 1}},
		"bytes":           {Config{Shape: OutboxKafka()}, Event{Topic: "orders", AggregateID: "o", Payload: []byte{0, 255}}},
		"text":            {Config{Shape: DebeziumQuarkus()}, Event{AggregateType: "o", AggregateID: "o", Type: "T", Payload: []byte("no JSON")}},
		"uuid in capital": {Config{Shape: Polling()}, Event{AggregateType: "o", AggregateID: "7F0C1C5E-0000-4000-8000-000000000001", Type: "T", Payload: 1}},
	} {
		if _, err := writer(t, c.cfg).Write(t.Context(), &fake{}, c.event); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNew_RefusesWhatCannotWork(t *testing.T) {
	shape := func(f func(s *Shape)) Config { s := Outbox(); f(&s); return Config{Shape: s} }
	for words, cfg := range map[string]Config{
		"needs quotes":               {Table: "public.out box"},
		"a part is no name":          {Table: "public."},
		"more than two parts":        {Table: "a.b.c"},
		"a quote is not closed":      {Table: `"a`},
		"does not belong to a name":  {Table: `"a"b`},
		"MaxBytes is -1":             {MaxBytes: -1},
		"Store is 3":                 {Store: 3},
		"Store is not Message":       {MessagePrefix: "a"},
		"writes into no table":       {Store: Message, Table: "public.outbox"},
		"which finds none":           {Store: Message, SkipDuplicates: true},
		"DeleteRow needs":            {Store: DeleteRow, Shape: GenericSimple()},
		"is not closed":              {Topic: "${a"},
		`type "xml" is none`:         shape(func(s *Shape) { s.Payload.Type = "xml" }),
		"cannot hold the payload":    shape(func(s *Shape) { s.Payload.Type = "uuid" }),
		"cannot hold the id":         shape(func(s *Shape) { s.ID = Column{} }),
		"cannot hold the headers":    shape(func(s *Shape) { s.Headers.Type = "text" }),
		"only an id may be":          shape(func(s *Shape) { s.Key.Generated = true }),
		"for the key: \"\" is no na": {},
		"is no type of text":         shape(func(s *Shape) { s.Key.Type = "varchar(x)" }),
		"for the time of writing":    shape(func(s *Shape) { s.Now = []string{""} }),
	} {
		if strings.HasPrefix(words, "for the key") {
			cfg, words = shape(func(s *Shape) { s.Key.Name = "" }), `column for the aggregate id: "" is no name`
		}
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, want %s", err, words)
		}
	}
}

func TestNew_TakesEveryShapeAndItsNames(t *testing.T) {
	for _, s := range Shapes() {
		if _, err := New(Config{Shape: s}); err != nil {
			t.Errorf("%s: %v", s.Preset, err)
		}
	}
	for table, want := range map[string]string{"": `"public"."outbox"`, "Sales.Out": `"sales"."out"`, `sales."Out""box"`: `"sales"."Out""box"`, "events": `"public"."events"`} {
		tx := &fake{}
		if _, err := writer(t, Config{Table: table}).Write(t.Context(), tx, placed("o")); err != nil || !strings.HasPrefix(tx.runs[0][0].SQL, "INSERT INTO "+want+" (") {
			t.Errorf("%s: %v, %s", table, err, tx.runs[0][0].SQL)
		}
	}
}

func TestSQL_RefusesWhatIsNoTransaction(t *testing.T) {
	var none *sql.Tx
	for name, tx := range map[string]Tx{"a pool": SQL(&sql.DB{}), "a connection": SQL(&sql.Conn{}), "nil": SQL(none), "no Tx": nil} {
		if _, err := writer(t, Config{}).Write(t.Context(), tx, placed("o")); !errors.Is(err, ErrNoTransaction) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// state is an error of a server, as drivers have them.
type state struct{ code, message string }

func (s state) Error() string    { return s.message }
func (s state) SQLState() string { return s.code }

func TestWrite_ExplainsTheServersErrors(t *testing.T) {
	for code, words := range map[string]string{
		"42P01": "relation does not exist; there is no such table: `cdc-relay setup --create-table`",
		"42501": "GRANT INSERT", "25006": "primary", "40001": "run the whole transaction again", "57014": "relation does not exist",
	} {
		_, err := writer(t, Config{}).Write(t.Context(), &fake{err: state{code, "relation does not exist"}}, placed("o"))
		var table *TableError
		if !errors.As(err, &table) || table.Code != code || !strings.Contains(err.Error(), words) || Retryable(err) != (code == "40001") {
			t.Errorf("%v", err)
		}
	}
	for _, code := range []string{"22P02", "23505", "P0001"} { // their words have values in them
		_, err := writer(t, Config{}).Write(t.Context(), &fake{err: state{code, secret}}, placed("o"))
		if err == nil || strings.Contains(err.Error(), secret) || !strings.Contains(err.Error(), code) {
			t.Errorf("%v", err)
		}
	}
	lost := errors.New("connection lost")
	if _, err := writer(t, Config{}).Write(t.Context(), &fake{err: lost}, placed("o")); !errors.Is(err, lost) || Retryable(err) {
		t.Errorf("%v", err)
	}
}

func TestArray_IsALiteralForEveryDriver(t *testing.T) {
	a := &Array{[]Text{{String: `a"b\c`}, {Null: true}, {}, {String: "{,}NULL é"}}}
	if got, err := a.Value(); err != nil || got != `{"a\"b\\c",NULL,"","{,}NULL é"}` {
		t.Errorf("%v, %v", got, err)
	}
}

func TestWrite_HeadersAreJSON(t *testing.T) {
	headers := map[string]string{"": "", "a\"\\": "\x01\n\x1f\x7f<&>é\u2028😀"}
	var got map[string]string
	if err := json.Unmarshal(appendObject(nil, headers), &got); err != nil || !maps.Equal(got, headers) {
		t.Errorf("%q, %v", got, err)
	}
}

func TestWrite_MessageHasWhatTheRelayReads(t *testing.T) {
	w, tx := writer(t, Config{Store: Message, MessagePrefix: "shop", Trace: func(_ context.Context, set func(string, string)) { set("traceparent", "00-1") }}), &fake{}
	e := placed("o-1")
	e.ID, e.IdempotencyKey, e.Headers = UUID{1}, "k", map[string]string{"tenant": "acme"}
	written, err := w.Write(t.Context(), tx, e)
	if err != nil || written.IDs[0] != e.ID {
		t.Fatal(err)
	}
	want := `{"id":"01000000-0000-0000-0000-000000000000","aggregateType":"order","aggregateId":"o-1","type":"OrderPlaced","payload":{"n":1},"headers":{"idempotency_key":"k","tenant":"acme"},"traceparent":{"traceparent":"00-1"}}`
	if args := tx.runs[0][0].Args; args[0] != "shop" || args[1] != want {
		t.Errorf("%v\nwant %s", args, want)
	}
	if len(e.Headers) != 1 {
		t.Error("the caller's headers were changed")
	}
	if _, err := w.Write(t.Context(), tx, e, e); err != nil || !strings.Contains(tx.runs[1][0].SQL, "pg_logical_emit_message(true, $1, m)") {
		t.Error(err, tx.runs[1][0].SQL)
	}
	e.Payload = []byte(`{ "<&>": "` + "\u2028" + `" }`)
	if _, err := w.Write(t.Context(), tx, e); err != nil || !strings.Contains(tx.runs[2][0].Args[1].(string), `"payload":`+string(e.Payload.([]byte))+`,`) {
		t.Errorf("%v: the payload is changed: %s", err, tx.runs[2][0].Args[1])
	}
	e.AggregateType = ""
	if _, err := w.Write(t.Context(), tx, e); err == nil {
		t.Error("a message without a route was written")
	}
}
