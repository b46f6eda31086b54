//go:build tools

package browser

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/admin"
)

const operatorSecret = "the operator token of a test"

// rowSecret is in keys and values, and nowhere else.
const rowSecret = "customer-4711"

// box is a dead-letter topic without brokers: letters of one key stay together, and a letter of
// topic gone-topic cannot be sent.
type box struct {
	mu      sync.Mutex
	letters []admin.Letter
	sent    []string
	slow    chan struct{} // nil: jobs do not wait
}

func newBox() *box {
	b := new(box)
	now := time.Now()
	add := func(offset int64, reason, table, topic string) {
		b.letters = append(b.letters, admin.Letter{
			Partition: 3, Offset: offset, Time: now.Add(-time.Duration(100-offset) * time.Minute), Reason: reason, Table: table, Topic: topic,
			LSN: "16/B374D848", Seq: uint64(offset), Source: "7301/16384/cdc_relay", EventID: fmt.Sprintf("7f0c2d1e-%d", offset), Bytes: 1_348_211, State: "waiting",
		})
	}
	add(17, "record_too_large", "public.outbox", "order-events")
	add(18, "record_too_large", "public.outbox", "order-events")
	add(19, "unknown_topic", "public.outbox", "gone-topic")
	add(20, "encode", hostile, hostile)
	return b
}

func (b *box) tools() *admin.LetterTools {
	return &admin.LetterTools{Topic: "cdc-relay.dead-letters", Read: b.read, Show: b.show, Plan: b.plan, Act: b.act}
}

func (b *box) read(context.Context) (*admin.LetterList, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return &admin.LetterList{Letters: slices.Clone(b.letters)}, nil
}

func (b *box) show(_ context.Context, at admin.Place, values bool) (*admin.ShownLetter, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.letters {
		if l.Partition == at.Partition && l.Offset == at.Offset {
			shown := &admin.ShownLetter{Letter: l, Message: "produce to order-events: MESSAGE_TOO_LARGE", Headers: []string{"id", "eventType"}}
			if values {
				shown.Record = map[string]any{"key": rowSecret, "value": map[string]string{"customer": rowSecret}, "headers": []map[string]string{{"name": "id", "value": l.EventID}}}
			}
			return shown, nil
		}
	}
	return nil, nil
}

func (b *box) chosen(f admin.LetterFilter) (all []*admin.Letter) {
	for i := range b.letters {
		l := &b.letters[i]
		if l.State == "waiting" && (f.Reason == "" || f.Reason == l.Reason) && (f.Topic == "" || f.Topic == l.Topic) && (f.Table == "" || f.Table == l.Table) &&
			(f.Places == nil || slices.Contains(f.Places, admin.Place{Partition: l.Partition, Offset: l.Offset})) {
			all = append(all, l)
		}
	}
	return all
}

func (b *box) plan(_ context.Context, f admin.LetterFilter) (*admin.Plan, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.chosen(f)
	p := &admin.Plan{Digest: digest(all)}
	for verb, of := range map[string]*admin.PlannedAction{"RE-DRIVE": &p.Redrive, "DISCARD": &p.Discard} {
		*of = admin.PlannedAction{Words: fmt.Sprintf("%s %d", verb, len(all)), Letters: len(all), Keys: len(all), Groups: []any{}}
		for _, l := range all {
			of.Groups = append(of.Groups, map[string]any{"table": l.Table, "topic": l.Topic, "letters": 1, "selected": 1, "incomplete": 0, "from": l.LSN, "through": l.LSN})
		}
	}
	return p, nil
}

func digest(all []*admin.Letter) string {
	var text []string
	for _, l := range all {
		text = append(text, fmt.Sprint(l.Partition, l.Offset))
	}
	return strings.Join(text, ",")
}

func (b *box) act(ctx context.Context, p *admin.Plan, discard bool, begun func(), progress func(admin.Progress), halted func() bool) error {
	b.mu.Lock()
	all, slow := b.chosen(p.Filter), b.slow
	same := digest(all) == p.Digest
	b.mu.Unlock()
	if !same {
		return &admin.Failure{Code: http.StatusConflict, Problem: "plan_changed", Err: errors.New("the dead letters changed since the plan: 2 waited then; plan again")}
	}
	begun()
	at := admin.Progress{Groups: []any{}}
	for _, l := range all {
		if slow != nil {
			select {
			case <-slow:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if halted() {
			at.Text = "cancelled between two keys"
			progress(at)
			return admin.ErrHalted
		}
		b.mu.Lock()
		at.Keys++
		switch {
		case discard:
			l.State = "discarded"
			at.Done++
		case l.Topic == "gone-topic":
			at.Failed++
			at.Groups = append(at.Groups, map[string]any{"table": l.Table, "topic": l.Topic, "error": "topic gone-topic does not exist"})
		default:
			l.State = "sent"
			b.sent = append(b.sent, l.EventID)
			at.Done, at.Records = at.Done+1, at.Records+1
		}
		b.mu.Unlock()
		progress(at)
	}
	return nil
}
