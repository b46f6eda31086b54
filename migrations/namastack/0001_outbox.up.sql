-- The table outbox_record of Namastack Outbox for Spring, in its early shape.
CREATE TABLE :"schema".:"table" (
    id            varchar(255) NOT NULL PRIMARY KEY,
    status        varchar(20)  NOT NULL,
    aggregate_id  varchar(255) NOT NULL,
    event_type    varchar(255) NOT NULL,
    payload       text         NOT NULL,
    created_at    timestamptz  NOT NULL,
    completed_at  timestamptz,
    retry_count   integer      NOT NULL,
    next_retry_at timestamptz  NOT NULL
);

CREATE INDEX ON :"schema".:"table" (aggregate_id, created_at);
CREATE INDEX ON :"schema".:"table" (status, next_retry_at);
