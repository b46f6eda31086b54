-- Transactional outbox: a service writes its rows and its events in one
-- transaction; the relay reads the inserts from the write-ahead log.
CREATE TABLE "public"."outbox" (
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

CREATE UNIQUE INDEX ON "public"."outbox" (idempotency_key) WHERE idempotency_key IS NOT NULL;

COMMENT ON TABLE "public"."outbox" IS 'Transactional outbox. Insert only: the relay sends each inserted row once it is committed, and never writes here. Rows may be deleted at any time after their commit.';
COMMENT ON COLUMN "public"."outbox".id IS 'Event id, unique; sent as header id, by which consumers drop duplicates.';
COMMENT ON COLUMN "public"."outbox".aggregate_type IS 'Kind of thing that the event is about; the topic is made of it.';
COMMENT ON COLUMN "public"."outbox".aggregate_id IS 'The thing itself; key of the record, so that its events stay in order.';
COMMENT ON COLUMN "public"."outbox".event_type IS 'What happened; sent as header eventType.';
COMMENT ON COLUMN "public"."outbox".payload IS 'The event; value of the record, sent as PostgreSQL prints it.';
COMMENT ON COLUMN "public"."outbox".headers IS 'JSON object of further record headers; NULL for none.';
COMMENT ON COLUMN "public"."outbox".traceparent IS 'W3C trace context of the writer; sent as header traceparent when not null.';
COMMENT ON COLUMN "public"."outbox".idempotency_key IS 'Makes writing the same event twice fail; sent as header idempotency_key when not null.';
COMMENT ON COLUMN "public"."outbox".created_at IS 'When the transaction that wrote the event began. Not the order of events: that is the order of commits.';
