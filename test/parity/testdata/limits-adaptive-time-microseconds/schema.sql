create type public.mood as enum ('sad', 'ok');
create table public.outbox (
  id integer primary key,
  aggregatetype text not null,
  aggregateid text not null,
  payload text,
  ma public.mood[],
  na numeric[],
  n2 numeric(10,2)[],
  da date[],
  ta timestamp[],
  t3a timestamp(3)[],
  tza timestamptz[],
  tma time[],
  t timestamp,
  t3 timestamp(3),
  t0 timestamp(0),
  tz timestamptz,
  d date
);
