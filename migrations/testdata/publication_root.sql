-- Which rows the relay gets. Run as the owner of the tables.
-- Inserts only: updates and deletes of an outbox are housekeeping, no events.
CREATE PUBLICATION "Odd ""pub""" FOR TABLE "public"."outbox"
    WITH (publish = 'insert', publish_via_partition_root = true);
