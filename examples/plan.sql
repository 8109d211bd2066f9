-- The plan of plan_worker.py and plan_worker.js: every customer is to get ten points, once. A split is a thousand of them.

CREATE TABLE customer (id bigint PRIMARY KEY, points int NOT NULL DEFAULT 0);
INSERT INTO customer SELECT generate_series(1, 20000);

SELECT revenant.create_plan('example', lease_ttl => '5 s');
SELECT revenant.lead_plan('example', 'plan.sql') AS generation \gset
SELECT revenant.publish('example', :generation, (
	SELECT jsonb_agg(jsonb_build_object('id', 'from ' || a, 'spec', jsonb_build_object('from', a, 'to', a + 999)))
	FROM generate_series(1, (SELECT max(id) FROM customer), 1000) AS a), final => true);
SELECT revenant.resign_plan('example', :generation);
