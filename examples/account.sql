-- The entity of account.py and account.js: an account whose balance is never negative.

SELECT revenant.create_snapshot_table('account');

CREATE FUNCTION account_handler(id text, state jsonb, message jsonb) RETURNS revenant.reply LANGUAGE plpgsql AS $$
DECLARE
	amount numeric := message ->> 'amount';
	balance numeric := state ->> 'balance';
BEGIN
	CASE message ->> 'do'
	WHEN 'deposit' THEN balance := balance + amount;
	WHEN 'withdraw' THEN balance := balance - amount;
	END CASE;
	IF amount <= 0 OR balance IS NULL THEN
		RAISE 'an amount must be positive' USING ERRCODE = 'invalid_parameter_value';
	ELSIF balance < 0 THEN
		RAISE 'insufficient funds' USING ERRCODE = 'check_violation';
	END IF;
	RETURN (to_jsonb(balance), jsonb_build_object('balance', balance), NULL)::revenant.reply;
END
$$;

SELECT revenant.create_entity_type('account', 'account', 'account_handler', initial_state => '{"balance": 0}');
