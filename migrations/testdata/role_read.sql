-- The role that the relay connects as, with the least it needs. Run as a
-- superuser or the provider's administrator, in the database of the outbox.
-- Rows of a publication are streamed without SELECT on their table. REPLICATION
-- is powerful all the same: treat its password like read access to everything.
-- Set the password without writing it into a file: \password in psql.
-- Amazon RDS and Aurora: leave REPLICATION out and GRANT rds_replication instead.
-- pg_hba.conf needs an entry for the database, not one for "replication".
CREATE ROLE "cdc_relay" LOGIN REPLICATION;
GRANT CONNECT ON DATABASE "shop" TO "cdc_relay";

-- Lets it look at rows as well, as setup does to count those that are there already.
GRANT USAGE ON SCHEMA "public", "shop" TO "cdc_relay";
GRANT SELECT ON TABLE "public"."outbox", "shop"."Odd ""Name""", "shop"."events" TO "cdc_relay";
