-- A topic of Watermill's SQL publisher: name the table watermill_ and the topic.
CREATE TABLE :"schema".:"table" (
    "offset"       bigserial,
    uuid           varchar(36) NOT NULL,
    created_at     timestamp   NOT NULL DEFAULT current_timestamp,
    payload        json,
    metadata       json,
    transaction_id xid8        NOT NULL,
    PRIMARY KEY (transaction_id, "offset")
);
