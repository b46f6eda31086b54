-- Deletes the events that the table still holds.
DROP TABLE "Shop"."out""box";
