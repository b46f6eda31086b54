-- The outbox of goharvest.
CREATE TABLE :"schema".:"table" (
    id                  bigserial    PRIMARY KEY,
    create_time         timestamptz  NOT NULL,
    kafka_topic         varchar(249) NOT NULL,
    kafka_key           varchar(100) NOT NULL,
    kafka_value         varchar(10000),
    kafka_header_keys   text[]       NOT NULL,
    kafka_header_values text[]       NOT NULL,
    leader_id           uuid
);
