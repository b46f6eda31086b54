-- The table outbox_kafka of tomorrow-one's transactional-outbox.
CREATE TABLE :"schema".:"table" (
    id        bigserial    PRIMARY KEY,
    created   timestamp    NOT NULL DEFAULT now(),
    processed timestamp,
    topic     varchar(128) NOT NULL,
    key       varchar(128),
    value     bytea        NOT NULL,
    headers   jsonb
);

CREATE INDEX ON :"schema".:"table" (id) WHERE processed IS NULL;
CREATE INDEX ON :"schema".:"table" (processed);
