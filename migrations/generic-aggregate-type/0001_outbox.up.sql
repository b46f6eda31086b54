-- An outbox of many articles, with a kind of aggregate and no key.
CREATE TABLE :"schema".:"table" (
    id         uuid        NOT NULL DEFAULT gen_random_uuid() PRIMARY KEY,
    aggregate  text        NOT NULL,
    event_type text        NOT NULL,
    payload    jsonb       NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    sent_at    timestamptz
);
