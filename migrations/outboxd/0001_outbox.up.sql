-- The outbox of outboxd, with its optional columns.
CREATE TABLE :"schema".:"table" (
    id            bigserial   PRIMARY KEY,
    topic         text        NOT NULL,
    payload       bytea       NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT now(),
    aggregate_id  text,
    partition_key text
);
