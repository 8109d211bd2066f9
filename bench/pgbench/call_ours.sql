\set id random(1, 10000)
SELECT revenant.call('account', :id, '{"amount": 1}');
