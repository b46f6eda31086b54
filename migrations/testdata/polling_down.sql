-- Deletes the events that the table still holds.
DROP TABLE "public"."outbox";
