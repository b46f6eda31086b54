-- An outbox as TypeORM entities commonly have it.
CREATE TABLE :"schema".:"table" (
    id           uuid      NOT NULL DEFAULT gen_random_uuid() PRIMARY KEY,
    type         varchar   NOT NULL,
    aggregate_id varchar,
    payload      jsonb     NOT NULL,
    created_at   timestamp NOT NULL DEFAULT now(),
    sent_at      timestamp
);
