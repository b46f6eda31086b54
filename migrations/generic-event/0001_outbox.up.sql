-- An outbox whose event types are the topics.
CREATE TABLE :"schema".:"table" (
    id               uuid        NOT NULL DEFAULT gen_random_uuid() PRIMARY KEY,
    event_type       text        NOT NULL,
    payload          jsonb       NOT NULL,
    aggregate_id     text        NOT NULL,
    created_at       timestamptz NOT NULL DEFAULT now(),
    published_at     timestamptz,
    publish_attempts integer     NOT NULL DEFAULT 0,
    error            text
);
