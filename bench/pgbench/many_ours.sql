\set id random(1, :entities)
SELECT revenant.call('many', :id, '{"amount": 1}');
