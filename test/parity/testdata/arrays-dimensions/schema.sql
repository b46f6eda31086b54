create table public.outbox (
  id integer primary key,
  aggregatetype text not null,
  aggregateid text not null,
  payload text,
  a2 integer[],
  b2 text[]
);
