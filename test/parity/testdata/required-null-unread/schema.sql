create table public.outbox (
  id integer primary key,
  aggregatetype text not null,
  aggregateid text not null,
  payload text,
  odd numeric(5,2) not null
);
