create table public.outbox (
  id integer primary key,
  aggregatetype text not null,
  aggregateid text not null,
  payload text,
  p integer
);
