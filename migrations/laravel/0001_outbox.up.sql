-- An outbox as Laravel migrations commonly write it.
CREATE TABLE :"schema".:"table" (
    id            bigserial    PRIMARY KEY,
    topic         varchar(255) NOT NULL,
    key           varchar(255),
    event_type    varchar(255),
    payload       json         NOT NULL,
    headers       json,
    status        varchar(255) NOT NULL DEFAULT 'pending',
    attempts      integer      NOT NULL DEFAULT 0,
    last_error    text,
    created_at    timestamp(0),
    updated_at    timestamp(0)
);

CREATE INDEX ON :"schema".:"table" (status, created_at);
