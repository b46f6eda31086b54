-- The reference table of the Open Outbox specification.
CREATE TABLE :"schema".:"table" (
    event_id      uuid        NOT NULL PRIMARY KEY,
    event_type    text        NOT NULL,
    occurred_at   timestamptz NOT NULL DEFAULT now(),
    partition_key text        NOT NULL,
    payload       jsonb       NOT NULL,
    headers       jsonb       NOT NULL DEFAULT '{}',
    status        text        NOT NULL DEFAULT 'PENDING' CHECK (status IN ('PENDING', 'DELIVERING', 'DELIVERED', 'DEAD')),
    attempts      integer     NOT NULL DEFAULT 0,
    available_at  timestamptz NOT NULL DEFAULT now(),
    locked_by     text,
    locked_at     timestamptz,
    last_error    text,
    created_at    timestamptz NOT NULL DEFAULT now()
);

CREATE INDEX ON :"schema".:"table" (status, available_at, created_at);
CREATE INDEX ON :"schema".:"table" (partition_key, created_at);
