create table public.outbox (
  id integer primary key,
  aggregatetype text not null,
  aggregateid text not null,
  payload text,
  r numeric(5,2) not null
);
