package outbox

import (
	"fmt"
	"strconv"
	"strings"
)

// role is what a column is for, and the order in which columns are written.
type role int

const (
	roleID role = iota
	roleRoute
	roleKey
	roleTopic
	roleType
	rolePayload
	roleHeaders
	roleTrace
	roleIdempotencyKey
	roleCount
)

// fields are the roles as EventError names them.
var fields = [roleCount]string{"id", "aggregate type", "aggregate id", "topic", "type", "payload", "headers", "trace context", "idempotency key"}

// statements are those of one table. They do not depend on the events.
type statements struct {
	written []role // those that have a column which is not generated, in the order of $1, $2, …

	insertOne, insertMany string
	deleteOne, deleteMany string

	// These are for events of which some may have been written before. They return, as
	// text, what tells an event that was not. The others cost less, and need no SELECT.
	skipOne, skipMany string
}

// compile writes the statements for a schema and a table.
func compile(place []string, columns *[roleCount]typed, now []string) (*statements, error) {
	s := &statements{}
	var quoted []string
	for _, part := range place {
		name, err := quoteName(part)
		if err != nil {
			return nil, err
		}
		quoted = append(quoted, name)
	}
	table := strings.Join(quoted, ".")
	var names, placeholders, arrays, aliases, casts []string
	for r := range roleCount {
		c := &columns[r]
		if c.kind == kindNone || c.Generated {
			continue
		}
		name, err := quoteName(c.Name)
		if err != nil {
			return nil, err
		}
		s.written = append(s.written, r)
		n := strconv.Itoa(len(s.written))
		names = append(names, name)
		placeholders = append(placeholders, "$"+n)
		arrays = append(arrays, "$"+n+"::text[]")
		aliases = append(aliases, "c"+n)
		casts = append(casts, "c"+n+c.cast())
	}
	for _, column := range now {
		name, err := quoteName(column)
		if err != nil {
			return nil, fmt.Errorf("column for the time of writing: %w", err)
		}
		names, placeholders, casts = append(names, name), append(placeholders, "now()"), append(casts, "now()")
	}
	id, _ := quoteName(columns[roleID].Name) // was quoted above, or is generated and was checked
	tells := id + "::text"
	if columns[roleID].Generated {
		tells = "NULL::text"
		if c := &columns[roleIdempotencyKey]; c.kind != kindNone {
			tells, _ = quoteName(c.Name)
			tells += "::text"
		}
	}
	head := fmt.Sprintf("INSERT INTO %s (%s) ", table, strings.Join(names, ", "))
	skipping := " ON CONFLICT DO NOTHING RETURNING " + tells
	s.insertOne = head + "VALUES (" + strings.Join(placeholders, ", ") + ")"
	// ORDER BY keeps the order of a key within the transaction.
	s.insertMany = head + fmt.Sprintf("SELECT %s FROM unnest(%s) WITH ORDINALITY AS e(%s, n) ORDER BY n", strings.Join(casts, ", "), strings.Join(arrays, ", "), strings.Join(aliases, ", "))
	s.skipOne, s.skipMany = s.insertOne+skipping, s.insertMany+skipping
	if cast := columns[roleID].cast(); cast != "" {
		s.deleteMany = fmt.Sprintf("DELETE FROM %s WHERE %s = ANY($1::text[]%s[])", table, id, cast)
	} else {
		s.deleteMany = fmt.Sprintf("DELETE FROM %s WHERE %s = ANY($1::text[])", table, id)
	}
	s.deleteOne = fmt.Sprintf("DELETE FROM %s WHERE %s = $1", table, id)
	return s, nil
}

// cast makes the column's type of text.
func (t *typed) cast() string {
	switch t.kind {
	case kindUUID:
		return "::uuid"
	case kindInteger:
		return "::bigint"
	case kindJSON:
		return "::json"
	case kindJSONB:
		return "::jsonb"
	case kindBytes:
		return "::bytea"
	default:
		return ""
	}
}

const (
	// Not transactional messages (false) would be sent though the transaction rolls back.
	emitOne  = "SELECT pg_logical_emit_message(true, $1, $2::text)::text"
	emitMany = "SELECT pg_logical_emit_message(true, $1, m)::text FROM unnest($2::text[]) WITH ORDINALITY AS e(m, n) ORDER BY n"
)
