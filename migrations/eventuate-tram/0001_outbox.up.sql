-- The message table of Eventuate Tram.
CREATE TABLE :"schema".:"table" (
    id                varchar(255) NOT NULL PRIMARY KEY,
    destination       text         NOT NULL,
    headers           text         NOT NULL,
    payload           text         NOT NULL,
    published         smallint     DEFAULT 0,
    message_partition smallint,
    creation_time     bigint
);

CREATE INDEX ON :"schema".:"table" (published, id);
