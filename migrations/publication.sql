-- Which rows the relay gets. Run as the owner of the tables.
-- Inserts only: updates and deletes of an outbox are housekeeping, no events.
CREATE PUBLICATION :"publication" FOR TABLE :tables
    WITH (publish = 'insert', publish_via_partition_root = :via_root);
