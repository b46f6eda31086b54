-- An outbox as MikroORM entities commonly have it.
CREATE TABLE :"schema".:"table" (
    id           text        NOT NULL PRIMARY KEY,
    topic        text        NOT NULL,
    payload      jsonb       NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    processed_at timestamptz
);
