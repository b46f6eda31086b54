create type public.mood as enum ('sad', 'ok');
create table public.outbox (
  id integer primary key,
  aggregatetype text not null,
  aggregateid text not null,
  payload text,
  r public.mood[] not null
);
