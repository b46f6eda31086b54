insert into public.outbox (id, aggregatetype, aggregateid, payload, a2) values (1, 'Order', 'k', 'a2 ''{5}''', '{5}');
insert into public.outbox (id, aggregatetype, aggregateid, payload, a2) values (2, 'Order', 'k', 'a2 ''{{1,2},{3,4}}''', '{{1,2},{3,4}}');
insert into public.outbox (id, aggregatetype, aggregateid, payload, a2) values (3, 'Order', 'k', 'a2 ''{6}''', '{6}');
