-- Keys of the events that a consumer has handled, in the database that its effects go to.
CREATE TABLE IF NOT EXISTS :"schema".inbox (
    consumer text        NOT NULL,
    key      text        NOT NULL COLLATE "C",
    at       timestamptz NOT NULL,
    dead     boolean     NOT NULL DEFAULT false,
    PRIMARY KEY (consumer, key)
);

CREATE INDEX IF NOT EXISTS inbox_dead ON :"schema".inbox (consumer, key) WHERE dead;
CREATE INDEX IF NOT EXISTS inbox_at ON :"schema".inbox USING brin (at) WITH (autosummarize = on);

CREATE TABLE IF NOT EXISTS :"schema".inbox_progress (
    consumer  text        NOT NULL,
    topic     text        NOT NULL,
    partition integer     NOT NULL,
    next      bigint      NOT NULL,
    at        timestamptz NOT NULL,
    starts    integer     NOT NULL DEFAULT 0,
    PRIMARY KEY (consumer, topic, partition)
);

-- On its own, so that a table from before this column gets it, too.
ALTER TABLE :"schema".inbox_progress ADD COLUMN IF NOT EXISTS topic_id uuid;

CREATE TABLE IF NOT EXISTS :"schema".inbox_attempts (
    consumer  text    NOT NULL,
    topic     text    NOT NULL,
    partition integer NOT NULL,
    record    bigint  NOT NULL,
    n         integer NOT NULL,
    PRIMARY KEY (consumer, topic, partition, record)
);

COMMENT ON TABLE :"schema".inbox IS 'Events that were handled: a key is inserted in the transaction that handles its event.';
COMMENT ON COLUMN :"schema".inbox.consumer IS 'Name of the handler. Two handlers never share one.';
COMMENT ON COLUMN :"schema".inbox.key IS 'Topic, kind (i: header id, k: header idempotency_key) and value; with ~ the SHA-256 of a long one.';
COMMENT ON COLUMN :"schema".inbox.at IS 'Clock of the partition when the event was handled; decides how long the key is kept.';
COMMENT ON COLUMN :"schema".inbox.dead IS 'The event became a dead letter. A record with this key is handled when it comes again.';
COMMENT ON TABLE :"schema".inbox_progress IS 'How far a consumer is. Delete the rows of a topic that it does not read any more: the oldest clock decides which keys are kept.';
COMMENT ON COLUMN :"schema".inbox_progress.next IS 'Offset before which everything is handled.';
COMMENT ON COLUMN :"schema".inbox_progress.at IS 'Newest timestamp of a record that was handled; the time of the last look, where none was left.';
COMMENT ON COLUMN :"schema".inbox_progress.starts IS 'How often a member began at next and came no further.';
COMMENT ON COLUMN :"schema".inbox_progress.topic_id IS 'Id of the topic that next and at are of. NULL: that of the next record, or the brokers do not tell it.';
COMMENT ON TABLE :"schema".inbox_attempts IS 'Records that are handled on their own because members ended near them: how often each was begun and did not come back. Delete a row to have its record handled again.';
COMMENT ON COLUMN :"schema".inbox_attempts.record IS 'Offset of the record.';
