-- The event store of Marten, mt_events, with string streams and headers.
CREATE TABLE :"schema".:"table" (
    seq_id         bigint      NOT NULL PRIMARY KEY,
    id             uuid        NOT NULL UNIQUE,
    stream_id      varchar     NOT NULL,
    version        bigint      NOT NULL,
    data           jsonb       NOT NULL,
    type           varchar(500) NOT NULL,
    "timestamp"    timestamptz NOT NULL DEFAULT now(),
    tenant_id      varchar     DEFAULT '*DEFAULT*',
    mt_dotnet_type varchar,
    correlation_id varchar,
    causation_id   varchar,
    headers        jsonb,
    is_archived    boolean     DEFAULT false,
    UNIQUE (stream_id, version)
);
