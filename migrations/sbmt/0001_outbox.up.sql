-- An outbox item table of sbmt-outbox for Rails.
CREATE TABLE :"schema".:"table" (
    id           bigserial PRIMARY KEY,
    uuid         uuid      NOT NULL UNIQUE,
    event_name   varchar   NOT NULL,
    event_key    varchar   NOT NULL,
    bucket       bigint    NOT NULL,
    status       integer   NOT NULL DEFAULT 0,
    options      jsonb,
    payload      bytea     NOT NULL,
    errors_count integer   NOT NULL DEFAULT 0,
    error_log    text,
    processed_at timestamp,
    created_at   timestamp NOT NULL DEFAULT now(),
    updated_at   timestamp NOT NULL DEFAULT now()
);

CREATE INDEX ON :"schema".:"table" (status, id, bucket);
