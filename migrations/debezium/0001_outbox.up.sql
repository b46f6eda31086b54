-- Transactional outbox with the columns of Debezium's outbox event router.
CREATE TABLE :"schema".:"table" (
    id            uuid         NOT NULL DEFAULT gen_random_uuid() PRIMARY KEY,
    aggregatetype varchar(255) NOT NULL,
    aggregateid   varchar(255) NOT NULL,
    type          varchar(255) NOT NULL,
    payload       jsonb
);

COMMENT ON TABLE :"schema".:"table" IS 'Transactional outbox. Insert only: the relay sends each inserted row once it is committed, and never writes here. Rows may be deleted at any time after their commit.';
COMMENT ON COLUMN :"schema".:"table".id IS 'Event id, unique; sent as header id, by which consumers drop duplicates.';
COMMENT ON COLUMN :"schema".:"table".aggregatetype IS 'Kind of thing that the event is about; the topic is outbox.event. and this.';
COMMENT ON COLUMN :"schema".:"table".aggregateid IS 'The thing itself; key of the record, so that its events stay in order.';
COMMENT ON COLUMN :"schema".:"table".type IS 'What happened.';
COMMENT ON COLUMN :"schema".:"table".payload IS 'The event; value of the record, sent as PostgreSQL prints it. Null gives a null value.';
