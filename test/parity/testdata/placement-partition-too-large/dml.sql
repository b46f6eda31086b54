insert into public.outbox (id, aggregatetype, aggregateid, payload, p) values (1, 'Order', 'k', 'p 0', 0);
insert into public.outbox (id, aggregatetype, aggregateid, payload, p) values (2, 'Order', 'k', 'p 7', 7);
insert into public.outbox (id, aggregatetype, aggregateid, payload, p) values (3, 'Order', 'k', 'p 1', 1);
