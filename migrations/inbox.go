package migrations

import (
	_ "embed"
	"fmt"
)

//go:embed inbox.sql
var inboxSQL string

// Inbox is the SQL of the tables of a consumer that uses the Go module inbox: in one schema, all
// statements may run again. With a role it has what the consumer needs of them: the role exists.
func Inbox(schema, role string) ([]Part, error) {
	up, err := substitute("inbox.sql", inboxSQL, map[string]string{"schema": schema})
	if err != nil {
		return nil, err
	}
	in, _ := quote(schema) // fill has checked it
	parts := []Part{{
		Name: "inbox",
		Up:   up,
		Down: "-- Forgets which events were handled: a repeated record is handled again.\n" +
			"DROP TABLE IF EXISTS " + in + ".inbox, " + in + ".inbox_progress, " + in + ".inbox_attempts;",
	}}
	if role == "" {
		return parts, nil
	}
	to, err := quote(role)
	if err != nil {
		return nil, fmt.Errorf("role: %w", err)
	}
	const attempts = "SELECT, INSERT, UPDATE (n), DELETE"
	const keys, progress = "SELECT, INSERT, UPDATE (dead, at), DELETE", "SELECT, INSERT, UPDATE (next, at, starts, topic_id)"
	return append(parts, Part{
		Name: "grants",
		Up: "-- UPDATE is for keys of dead letters, DELETE for keys that are old.\n" +
			"GRANT USAGE ON SCHEMA " + in + " TO " + to + ";\n" +
			"GRANT " + keys + " ON TABLE " + in + ".inbox TO " + to + ";\n" +
			"GRANT " + progress + " ON TABLE " + in + ".inbox_progress TO " + to + ";\n" +
			"GRANT " + attempts + " ON TABLE " + in + ".inbox_attempts TO " + to + ";",
		Down: "REVOKE " + keys + " ON TABLE " + in + ".inbox FROM " + to + ";\n" +
			"REVOKE " + progress + " ON TABLE " + in + ".inbox_progress FROM " + to + ";\n" +
			"REVOKE " + attempts + " ON TABLE " + in + ".inbox_attempts FROM " + to + ";",
	}), nil
}
