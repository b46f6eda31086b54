-- An outbox as Prisma makes it of a model with camel-case fields.
CREATE TABLE :"schema".:"table" (
    id              text         NOT NULL PRIMARY KEY,
    "aggregateType" text         NOT NULL,
    "aggregateId"   text         NOT NULL,
    "eventName"     text         NOT NULL,
    payload         jsonb        NOT NULL,
    metadata        jsonb,
    status          text         NOT NULL DEFAULT 'PENDING',
    "retryCount"    integer      NOT NULL DEFAULT 0,
    "createdAt"     timestamp(3) NOT NULL DEFAULT current_timestamp,
    "processedAt"   timestamp(3)
);

CREATE INDEX ON :"schema".:"table" (status, "createdAt");
