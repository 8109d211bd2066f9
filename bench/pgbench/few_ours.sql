\set id random(1, 1000)
SELECT revenant.call('few', :id, '{"amount": 1}');
