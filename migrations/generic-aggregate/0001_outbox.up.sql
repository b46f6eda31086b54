-- The outbox of most articles.
CREATE TABLE :"schema".:"table" (
    id              uuid        NOT NULL DEFAULT gen_random_uuid() PRIMARY KEY,
    aggregate_type  text        NOT NULL,
    aggregate_id    text        NOT NULL,
    event_type      text        NOT NULL,
    payload         jsonb       NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    published_at    timestamptz
);
