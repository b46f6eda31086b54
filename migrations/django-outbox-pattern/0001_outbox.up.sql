-- The table published of django-outbox-pattern.
CREATE TABLE :"schema".:"table" (
    id          uuid         NOT NULL PRIMARY KEY,
    version     varchar(100) NOT NULL,
    destination varchar(255) NOT NULL,
    body        jsonb        NOT NULL,
    added       timestamptz  NOT NULL,
    expires_at  timestamptz,
    retry       integer      NOT NULL DEFAULT 0,
    status      integer      NOT NULL DEFAULT 1,
    headers     jsonb        NOT NULL DEFAULT '{}'
);
