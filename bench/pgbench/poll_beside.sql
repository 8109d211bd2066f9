\set member :token + random(0, 999)
SELECT 1;
