-- An outbox whose rows name their topic.
CREATE TABLE :"schema".:"table" (
    id         uuid        NOT NULL DEFAULT gen_random_uuid() PRIMARY KEY,
    topic      text        NOT NULL,
    key        text,
    event_type text,
    payload    jsonb       NOT NULL,
    headers    jsonb,
    created_at timestamptz NOT NULL DEFAULT now()
);
