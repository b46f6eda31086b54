-- The table IntegrationEventLog of Microsoft's eShop.
CREATE TABLE :"schema".:"table" (
    "EventId"       uuid        NOT NULL PRIMARY KEY,
    "EventTypeName" text        NOT NULL,
    "State"         integer     NOT NULL,
    "TimesSent"     integer     NOT NULL,
    "CreationTime"  timestamptz NOT NULL,
    "Content"       text        NOT NULL,
    "TransactionId" uuid        NOT NULL
);
