-- The table outbox_messages of pgx-outbox.
CREATE TABLE :"schema".:"table" (
    id           bigint    GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    broker       text      NOT NULL,
    topic        text      NOT NULL,
    metadata     jsonb,
    payload      jsonb     NOT NULL,
    created_at   timestamp NOT NULL DEFAULT (now() AT TIME ZONE 'utc'),
    published_at timestamp
);
