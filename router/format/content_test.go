package format

import (
	"strconv"
	"testing"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/column"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// An empty value would be sent in place of the event.
func TestContent_DoesNotSendAFormatThatHasNoWriter(t *testing.T) {
	rel := &wal.Relation{Namespace: "public", Name: "outbox", Columns: []wal.Column{{Name: "payload", Type: 25}}}
	payload, err := column.NewSource(rel, "payload")
	if err != nil {
		t.Fatal(err)
	}
	row := &wal.Row{Relation: rel, Values: []wal.Value{{Kind: wal.Text, Data: []byte("paid")}}}
	defer func() {
		if recover() == nil {
			t.Error("a value of an unknown format was made")
		}
	}()
	var scratch []byte
	c := Content{Format: "morse", Payload: payload}
	value, err := c.Value(&record.Buffer{}, row, &scratch)
	t.Errorf("value %q, error %v", value, err)
}

func TestContent_BoundsTheHeaderKeysThatItRemembers(t *testing.T) {
	var c Content
	for i := range 3 * maxInterned {
		key := strconv.Itoa(i)
		if got := c.intern([]byte(key)); got != key {
			t.Fatalf("%s becomes %s", key, got)
		}
	}
	if len(c.keys) > maxInterned {
		t.Errorf("%d keys remembered", len(c.keys))
	}
}
