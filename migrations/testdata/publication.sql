-- Which rows the relay gets. Run as the owner of the tables.
-- Inserts only: updates and deletes of an outbox are housekeeping, no events.
CREATE PUBLICATION "cdc_relay" FOR TABLE "public"."outbox", "shop"."Odd ""Name""", "shop"."events"
    WITH (publish = 'insert', publish_via_partition_root = false);
