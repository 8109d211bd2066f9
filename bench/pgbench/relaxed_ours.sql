SELECT revenant.call('relaxed', '1', '{"amount": 1}');
