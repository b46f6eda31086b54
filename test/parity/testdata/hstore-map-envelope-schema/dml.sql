insert into public.outbox (id, aggregatetype, aggregateid, payload, h) values (1, 'Order', 'k', 'h ''zeta=>1, alpha=>NULL, "b b"=>"x\"y"''', 'zeta=>1, alpha=>NULL, "b b"=>"x\"y"');
insert into public.outbox (id, aggregatetype, aggregateid, payload, h) values (2, 'Order', 'k', 'h ''''', '');
insert into public.outbox (id, aggregatetype, aggregateid, payload, h) values (3, 'Order', 'k', 'h NULL', NULL);
