package outbox

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/outbox/internal/jsontext"
)

// PythonKey makes the key that many Python services make of an event:
//
//	hashlib.sha256(f"{aggregate_id}:{event_type}:{json.dumps(payload, sort_keys=True)}".encode()).hexdigest()[:32]
//
// It is for services that share a table with such a writer. Key is the better one for all
// others: PythonKey is made of the content, and "a:b" beside "c" gives the key of "a" beside
// "b:c".
//
// payload is JSON ([]byte, json.RawMessage), read as Python's json.loads reads it, or a Go
// value made of nil, bool, string, json.Number, integers, floats, []any and map[string]any. An integer and a float
// differ as they do in Python: 12 and 12.0 have different keys. A struct is refused, because
// encoding/json writes the float 12.0 as 12.
//
// Compute the key before the event is written, and carry it. jsonb changes the text: what
// comes back from the table has another key.
func PythonKey(aggregateID, eventType string, payload any) (string, error) {
	if !utf8.ValidString(aggregateID) || !utf8.ValidString(eventType) {
		return "", errors.New("make Python key: aggregate id or type is not UTF-8")
	}
	b := make([]byte, 0, 512)
	b = append(b, aggregateID...)
	b = append(b, ':')
	b = append(b, eventType...)
	b = append(b, ':')
	b, err := jsontext.AppendPython(b, payload)
	if err != nil {
		return "", fmt.Errorf("make Python key: payload: %w", err)
	}
	return digest(b), nil
}
