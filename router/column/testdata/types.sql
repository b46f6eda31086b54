-- Prints the golden table of the exact types: type, text form, send format in hex.
--   psql -XAtq -F "$(printf '\t')" -f types.sql > types.golden
-- format('%s') uses the type's output function, as the stream does.
-- The settings are those that the relay pins for its session.
SET DateStyle = 'ISO, MDY';
SET TimeZone = 'UTC';
SET IntervalStyle = 'postgres';
SET bytea_output = 'hex';
SET extra_float_digits = 1;
SET client_encoding = 'UTF8';
SELECT '# captured from PostgreSQL ' || current_setting('server_version');
SELECT 'bool', format('%s', v), encode(boolsend(v), 'hex') FROM (VALUES (true), (false)) t(v);
SELECT 'int2', format('%s', v), encode(int2send(v::int2), 'hex') FROM (VALUES (0), (1), (-1), (32767), (-32768)) t(v);
SELECT 'int4', format('%s', v), encode(int4send(v::int4), 'hex') FROM (VALUES (0), (1), (-1), (42), (2147483647), (-2147483648)) t(v);
SELECT 'int8', format('%s', v), encode(int8send(v::int8), 'hex') FROM (VALUES (0), (1), (-1), (10), (9223372036854775807), (-9223372036854775808)) t(v);
SELECT 'text', format('%s', v), encode(textsend(v), 'hex') FROM (VALUES ('a'), ('é😀 "x" \ y'), (' spaced ')) t(v);
SELECT 'varchar', format('%s', v), encode(varcharsend(v::varchar), 'hex') FROM (VALUES ('a'), ('order_created')) t(v);
SELECT 'bpchar', format('%s', v), encode(bpcharsend(v), 'hex') FROM (VALUES ('ab'::char(5)), ('é'::char(3))) t(v);
SELECT 'name', format('%s', v), encode(namesend(v), 'hex') FROM (VALUES ('public'::name), ('Mixed "Case"'::name)) t(v);
SELECT 'json', format('%s', v), encode(json_send(v), 'hex') FROM (VALUES ('{"b": 1,  "a":1.50}'::json), ('null'::json), ('"é"'::json)) t(v);
SELECT 'jsonb', format('%s', v), encode(jsonb_send(v), 'hex') FROM (VALUES ('{"b":1,  "a":1.50,"b":2}'::jsonb), ('null'::jsonb), ('[]'::jsonb), ('"😀"'::jsonb), ('1e30'::jsonb)) t(v);
SELECT 'uuid', format('%s', v), encode(uuid_send(v), 'hex') FROM (VALUES ('406c07f3-26f0-4eea-a50c-109940064b8f'::uuid), ('00000000-0000-0000-0000-000000000000'::uuid), ('FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF'::uuid)) t(v);
SELECT 'bytea', format('%s', v), encode(byteasend(v), 'hex') FROM (VALUES (''::bytea), ('\x00'::bytea), ('\xDEADBEEF'::bytea), ('abc'::bytea)) t(v);
SELECT 'date', format('%s', v), encode(date_send(v), 'hex') FROM (VALUES
  ('2000-01-01'::date), ('1999-12-31'::date), ('1970-01-01'::date), ('2024-02-29'::date), ('1900-02-28'::date), ('2100-03-01'::date),
  ('0001-01-01'::date), ('0001-12-31 BC'::date), ('0044-03-15 BC'::date), ('0005-02-29 BC'::date), ('4713-11-24 BC'::date), ('4714-11-24 BC'::date),
  ('9999-12-31'::date), ('10000-01-01'::date), ('5874897-12-31'::date), ('infinity'::date), ('-infinity'::date)) t(v);
SELECT 'timestamp', format('%s', v), encode(timestamp_send(v), 'hex') FROM (VALUES
  ('2000-01-01 00:00:00'::timestamp), ('1999-12-31 23:59:59.999999'::timestamp), ('2024-01-02 03:04:05.678912'::timestamp), ('2024-01-02 03:04:05.67'::timestamp),
  ('2024-01-02 03:04:05.000001'::timestamp), ('2024-01-02 03:04:05.1'::timestamp), ('2024-02-29 12:00:00'::timestamp), ('1969-12-31 23:59:59.9995'::timestamp),
  ('0044-03-15 12:30:00.5 BC'::timestamp), ('0001-12-31 23:59:59.999999 BC'::timestamp), ('0001-01-01 00:00:00'::timestamp), ('4714-11-24 00:00:00 BC'::timestamp),
  ('12345-06-07 08:09:10.11'::timestamp), ('294276-12-31 23:59:59.999999'::timestamp), ('infinity'::timestamp), ('-infinity'::timestamp)) t(v);
SELECT 'timestamptz', format('%s', v), encode(timestamptz_send(v), 'hex') FROM (VALUES
  ('2000-01-01 00:00:00+00'::timestamptz), ('1999-12-31 23:59:59.999999+00'::timestamptz), ('2024-01-02 03:04:05.678912+05:30'::timestamptz), ('2024-01-02 03:04:05.120000-08'::timestamptz),
  ('1883-11-18 12:00:00.000001+00'::timestamptz), ('0044-03-15 12:30:00 +00 BC'::timestamptz), ('12345-06-07 08:09:10.11+00'::timestamptz), ('294276-12-31 23:59:59.999999+00'::timestamptz),
  ('infinity'::timestamptz), ('-infinity'::timestamptz)) t(v);
-- Pseudo-random values over the whole range of each type; the sequence is fixed.
SELECT 'date', format('%s', v), encode(date_send(v), 'hex') FROM (SELECT '4714-11-24 BC'::date + ((i * 2654435761) % 2147483493)::int AS v FROM generate_series(1::bigint, 60) i) t WHERE v < 'infinity';
SELECT 'timestamp', format('%s', v), encode(timestamp_send(v), 'hex') FROM (SELECT '4714-11-24 BC'::timestamp + make_interval(days => ((i * 2654435761) % 109203489)::int, secs => (i * 7919.123457)) AS v FROM generate_series(1::bigint, 60) i) t;
SELECT 'timestamptz', format('%s', v), encode(timestamptz_send(v), 'hex') FROM (SELECT '1950-01-01'::timestamptz + make_interval(days => ((i * 2654435761) % 60000)::int, secs => (i * 7919.000123)) AS v FROM generate_series(1::bigint, 60) i) t;
