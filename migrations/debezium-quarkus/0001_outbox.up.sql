-- The table of Debezium's outbox extension for Quarkus, OutboxEvent.
CREATE TABLE :"schema".:"table" (
    id                 uuid         NOT NULL PRIMARY KEY,
    aggregatetype      varchar(255) NOT NULL,
    aggregateid        varchar(255) NOT NULL,
    type               varchar(255) NOT NULL,
    "timestamp"        timestamp    NOT NULL,
    payload            varchar(8000),
    tracingspancontext varchar(256)
);
