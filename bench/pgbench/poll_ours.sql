\set member :token + random(0, 999)
SELECT * FROM revenant.poll_plan('poll', :member, :seen);
