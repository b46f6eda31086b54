-- Transactional outbox for services that still poll it: the columns and the
-- indexes behind created_at are the poller's. The relay needs none of them.
CREATE TABLE :"schema".:"table" (
    id              uuid         NOT NULL DEFAULT gen_random_uuid() PRIMARY KEY,
    aggregate_type  varchar(100) NOT NULL,
    aggregate_id    uuid         NOT NULL,
    event_type      varchar(100) NOT NULL,
    payload         jsonb        NOT NULL,
    idempotency_key varchar(255) UNIQUE,
    created_at      timestamptz  NOT NULL DEFAULT now(),
    published_at    timestamptz,
    retry_count     integer      DEFAULT 0,
    last_error      text
);

CREATE INDEX ON :"schema".:"table" (created_at) WHERE published_at IS NULL;
CREATE INDEX ON :"schema".:"table" (aggregate_id, created_at);
CREATE INDEX ON :"schema".:"table" (idempotency_key) WHERE idempotency_key IS NOT NULL;

COMMENT ON TABLE :"schema".:"table" IS 'Transactional outbox. Insert only: the relay sends each inserted row once it is committed, and never writes here. Rows may be deleted at any time after their commit.';
COMMENT ON COLUMN :"schema".:"table".id IS 'Event id, unique; sent as header id, by which consumers drop duplicates.';
COMMENT ON COLUMN :"schema".:"table".aggregate_type IS 'Kind of thing that the event is about; the topic is made of it.';
COMMENT ON COLUMN :"schema".:"table".aggregate_id IS 'The thing itself; key of the record, so that its events stay in order.';
COMMENT ON COLUMN :"schema".:"table".event_type IS 'What happened; sent as header eventType.';
COMMENT ON COLUMN :"schema".:"table".payload IS 'The event; value of the record, sent as PostgreSQL prints it.';
COMMENT ON COLUMN :"schema".:"table".idempotency_key IS 'Makes writing the same event twice fail; sent as header idempotency_key when not null.';
COMMENT ON COLUMN :"schema".:"table".created_at IS 'When the transaction that wrote the event began. Not the order of events: that is the order of commits.';
COMMENT ON COLUMN :"schema".:"table".published_at IS 'For polling publishers: when the event was sent. The relay neither reads nor writes it.';
COMMENT ON COLUMN :"schema".:"table".retry_count IS 'For polling publishers: failed attempts. The relay neither reads nor writes it.';
COMMENT ON COLUMN :"schema".:"table".last_error IS 'For polling publishers: why the last attempt failed. The relay neither reads nor writes it.';
