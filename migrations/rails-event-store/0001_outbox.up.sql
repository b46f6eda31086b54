-- The table event_store_events of Rails Event Store, made with jsonb columns.
CREATE TABLE :"schema".:"table" (
    id         bigserial   PRIMARY KEY,
    event_id   uuid        NOT NULL UNIQUE,
    event_type varchar     NOT NULL,
    metadata   jsonb,
    data       jsonb       NOT NULL,
    created_at timestamp   NOT NULL,
    valid_at   timestamp
);

CREATE INDEX ON :"schema".:"table" (event_type);
CREATE INDEX ON :"schema".:"table" (created_at);
