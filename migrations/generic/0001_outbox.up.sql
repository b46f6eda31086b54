-- The least there can be: the topic has to be configured.
CREATE TABLE :"schema".:"table" (
    id         uuid        NOT NULL DEFAULT gen_random_uuid() PRIMARY KEY,
    payload    jsonb       NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);
