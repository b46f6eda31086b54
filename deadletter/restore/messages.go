package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/router/resolve"
)

// ofMessage reports whether a letter is of a logical message.
func (r *Rows) ofMessage(l *deadletter.Letter) bool {
	if l.Body != nil || l.Of.Known && l.Of.OID != 0 {
		return l.Body != nil
	}
	_, ok := r.messages(strings.TrimPrefix(l.Table, "message."))
	return ok && strings.HasPrefix(l.Table, "message.") && r.table(l.Table) < 0
}

// message routes the body that a letter of a logical message has with the present configuration.
func (r *Rows) message(ctx context.Context, l *deadletter.Letter) (made deadletter.Restored, err error) {
	if l.Body == nil {
		return made, fmt.Errorf("the letter has no %s and not the body of its logical message, as an earlier version wrote it, and a message is in no table; discard the letter, and emit the message again", strings.Join(l.Missing, ", "))
	}
	rel, ok := r.messages(l.Body.Prefix)
	if !ok {
		return made, fmt.Errorf("no entry of outbox in the configuration has message_prefix: %s, so nothing says how to route the message; add the entry", l.Body.Prefix)
	}
	if r.routes == nil {
		if r.routes, err = resolve.New(r.settings.Router); err != nil {
			return made, err
		}
	}
	if _, err := r.routes.Pin(rel); err != nil {
		return made, r.located(err)
	}
	row := l.MessageRow(rel)
	var buf record.Buffer // of its own and never reset: records of a key are sent together
	if err := r.routes.Route(ctx, &buf, row); err != nil {
		if of, ok := errors.AsType[*record.RowError](err); ok {
			return made, fmt.Errorf("%w; correct the mapping of message_prefix: %s, or discard the letter and emit the message again", of, l.Body.Prefix)
		}
		return made, err
	}
	if l.Nth >= len(buf.Records) {
		return made, fmt.Errorf("the letter is record %d of its message, and the message makes %d now; discard the letter, and emit the message again", l.Nth+1, len(buf.Records))
	}
	return deadletter.Restored{Record: &buf.Records[l.Nth]}, nil
}

// messages is the shape of the messages with a prefix that the configuration names, by itself or
// among all.
func (r *Rows) messages(prefix string) (*wal.Relation, bool) {
	cfg := &r.settings.Replication
	for _, name := range []string{prefix, wal.AnyPrefix} {
		if i := slices.Index(cfg.Messages, name); i >= 0 {
			return wal.MessageRelation(name, len(cfg.Tables)+i), true
		}
	}
	return nil, false
}

// table is the index of a configured table by its name, or -1.
func (r *Rows) table(name string) int {
	return slices.IndexFunc(r.settings.Replication.Tables, func(t wal.Table) bool { return t.Schema+"."+t.Name == name })
}
