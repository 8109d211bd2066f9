SELECT revenant.call('hot', '1', '{"amount": 1}');
