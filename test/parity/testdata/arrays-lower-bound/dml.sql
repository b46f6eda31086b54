insert into public.outbox (id, aggregatetype, aggregateid, payload, a2) values (1, 'Order', 'k', 'a2 ''{5}''', '{5}');
insert into public.outbox (id, aggregatetype, aggregateid, payload, a2) values (2, 'Order', 'k', 'a2 ''[0:1]={1,2}''', '[0:1]={1,2}');
insert into public.outbox (id, aggregatetype, aggregateid, payload, b2) values (3, 'Order', 'k', 'b2 ''[-1:0]={a,NULL}''', '[-1:0]={a,NULL}');
