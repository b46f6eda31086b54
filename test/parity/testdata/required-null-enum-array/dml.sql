insert into public.outbox (id, aggregatetype, aggregateid, payload, r) values (1, 'Order', 'k', 'r ''{ok}''', '{ok}');
--@ settle
insert into public.outbox (id, aggregatetype, aggregateid, payload, r) values (2, 'Order', 'k', 'x', '{ok,NULL}');
insert into public.outbox (id, aggregatetype, aggregateid, payload, r) values (3, 'Order', 'k', 'x', '{ok}');
