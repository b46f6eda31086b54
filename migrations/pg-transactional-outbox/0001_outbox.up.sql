-- The outbox of pg-transactional-outbox for Node.js.
CREATE TABLE :"schema".:"table" (
    id                uuid        NOT NULL PRIMARY KEY,
    aggregate_type    text        NOT NULL,
    aggregate_id      text        NOT NULL,
    message_type      text        NOT NULL,
    segment           text,
    concurrency       text        NOT NULL DEFAULT 'sequential',
    payload           jsonb       NOT NULL,
    metadata          jsonb,
    locked_until      timestamptz NOT NULL DEFAULT to_timestamp(0),
    created_at        timestamptz NOT NULL DEFAULT now(),
    processed_at      timestamptz,
    abandoned_at      timestamptz,
    started_attempts  smallint    NOT NULL DEFAULT 0,
    finished_attempts smallint    NOT NULL DEFAULT 0
);

CREATE INDEX ON :"schema".:"table" (segment);
CREATE INDEX ON :"schema".:"table" (created_at);
