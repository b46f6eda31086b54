package kafkainbox

import "github.com/jackc/pgx/v5/pgtype"

// source is where the records of a partition come from. Offsets tell what was handled only within
// one topic, and only while it has what was not.
type source struct {
	row    pgtype.UUID // id of the topic that the progress in the database is of
	id     pgtype.UUID // id of the topic that the records are of, where the brokers tell it
	unread int64       // offset before which nothing is left to be read; -1: not known
	wrong  error       // why records from here on cannot be handled
	still  still
}

// examine finds out whether records that were fetched continue what was read before. Start is
// where the partition begins. The caller holds mu.
func (p *partition) examine(topic [16]byte, start int64) {
	s := &p.source
	switch {
	case s.wrong != nil:
	case topic != [16]byte{} && s.id.Valid && s.id.Bytes != topic:
		s.wrong = &TopicError{Topic: p.topic, Partition: p.number, Was: s.id.Bytes, Is: topic}
	case s.unread >= 0 && start > s.unread:
		s.wrong = &LostError{Topic: p.topic, Partition: p.number, Next: s.unread, Start: start}
	}
	if topic != [16]byte{} {
		s.id = pgtype.UUID{Bytes: topic, Valid: true}
	}
}

// follow takes the offset of the next record that was fetched. With Offsets one that comes behind a
// later one is not what was handled: brokers lost the end of the log, and have another one. The
// caller holds mu.
func (p *partition) follow(offset int64) {
	s := &p.source
	if p.c.cfg.Offsets && offset < s.unread && s.wrong == nil {
		s.wrong = &RewindError{Next: s.unread}
	}
	s.unread = offset + 1
}

// expect takes the offset before which nothing is left to be read; a negative one is none.
func (p *partition) expect(next int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.source.unread = max(next, -1)
}

// meets takes the id of the topic that the progress in the database is of, and returns an error
// where the records are of another one.
func (p *partition) meets(row pgtype.UUID) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.source
	if row.Valid && s.id.Valid && row != s.id {
		return &TopicError{Topic: p.topic, Partition: p.number, Was: row.Bytes, Is: s.id.Bytes}
	}
	s.row = row
	return nil
}

func (p *partition) topicID() pgtype.UUID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.source.id
}
