-- The schema. One that somebody else made before is an error: nothing of it could be trusted.
CREATE SCHEMA revenant;
COMMENT ON SCHEMA revenant IS 'leases, fencing, elected tasks, durable entities and plans: there is only one';
