insert into public.outbox (id, aggregatetype, aggregateid, payload, r) values (1, 'Order', 'k', 'r 1.5', 1.5);
--@ settle
insert into public.outbox (id, aggregatetype, aggregateid, payload, r) values (2, 'Order', 'k', 'x', 'NaN');
insert into public.outbox (id, aggregatetype, aggregateid, payload, r) values (3, 'Order', 'k', 'x', 1.5);
