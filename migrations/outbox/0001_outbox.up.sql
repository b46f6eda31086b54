-- Transactional outbox: a service writes its rows and its events in one
-- transaction; the relay reads the inserts from the write-ahead log.
CREATE TABLE :"schema".:"table" (
    id              uuid        NOT NULL DEFAULT gen_random_uuid() PRIMARY KEY,
    aggregate_type  text        NOT NULL,
    aggregate_id    text        NOT NULL,
    event_type      text        NOT NULL,
    payload         jsonb       NOT NULL,
    headers         jsonb,
    traceparent     text,
    idempotency_key text,
    created_at      timestamptz NOT NULL DEFAULT now()
);

CREATE UNIQUE INDEX ON :"schema".:"table" (idempotency_key) WHERE idempotency_key IS NOT NULL;

COMMENT ON TABLE :"schema".:"table" IS 'Transactional outbox. Insert only: the relay sends each inserted row once it is committed, and never writes here. Rows may be deleted at any time after their commit.';
COMMENT ON COLUMN :"schema".:"table".id IS 'Event id, unique; sent as header id, by which consumers drop duplicates.';
COMMENT ON COLUMN :"schema".:"table".aggregate_type IS 'Kind of thing that the event is about; the topic is made of it.';
COMMENT ON COLUMN :"schema".:"table".aggregate_id IS 'The thing itself; key of the record, so that its events stay in order.';
COMMENT ON COLUMN :"schema".:"table".event_type IS 'What happened; sent as header eventType.';
COMMENT ON COLUMN :"schema".:"table".payload IS 'The event; value of the record, sent as PostgreSQL prints it.';
COMMENT ON COLUMN :"schema".:"table".headers IS 'JSON object of further record headers; NULL for none.';
COMMENT ON COLUMN :"schema".:"table".traceparent IS 'W3C trace context of the writer; sent as header traceparent when not null.';
COMMENT ON COLUMN :"schema".:"table".idempotency_key IS 'Makes writing the same event twice fail; sent as header idempotency_key when not null.';
COMMENT ON COLUMN :"schema".:"table".created_at IS 'When the transaction that wrote the event began. Not the order of events: that is the order of commits.';
