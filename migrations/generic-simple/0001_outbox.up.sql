-- The smallest outbox of many articles: no key, so no order between rows.
CREATE TABLE :"schema".:"table" (
    id           bigserial   PRIMARY KEY,
    event_type   text        NOT NULL,
    payload      jsonb       NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    published_at timestamptz,
    retry_count  integer     NOT NULL DEFAULT 0
);
