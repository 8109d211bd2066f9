-- A schedule fires when it says, on the wall clock of its place, and a mistake in one is refused with its place.
SET TimeZone = 'UTC';
SET DateStyle = 'ISO, YMD';

/* ---- fields, names, ranges, steps, lists, seconds, shortcuts */

CREATE FUNCTION pg_temp.next(schedule text, count int DEFAULT 3, after timestamptz DEFAULT '2026-01-01 00:00:00+00') RETURNS text LANGUAGE sql
AS $$ SELECT string_agg(to_char(t, 'Dy DD Mon YYYY HH24:MI:SS'), ', ') FROM revenant.preview_schedule(schedule, 'UTC', after, count) AS t $$;
SELECT s AS schedule, pg_temp.next(s) AS next FROM unnest(ARRAY['* * * * *', '*/20 * * * *', '5/20 * * * *', '10-12 3 * * *', '0 9-17/4 * * mon-fri',
	'0 0 1,15 * *', '0 0 * feb,aug 7', '0 0 13 * fri', '30 4 29 2 *', '*/20 * * * * *', '59 59 23 31 12 *', '0 0 * * 0-7', '@hourly', '@daily', '@midnight',
	'@weekly', '@monthly', '@yearly', '@annually', '0  0	1 1 *', '0 0 1 JAN SUN']) AS s;
SELECT count(*) FROM revenant.preview_schedule('@reboot');
SELECT revenant.preview_schedule('90 s', after => '2026-01-01 00:00:00+00', count => 2);
SELECT revenant.preview_schedule('1 month', after => '2026-01-31 00:00:00+00', count => 3);
-- Over the end of the year 1 BC, and no farther than there is time.
SELECT revenant.preview_schedule('1 month', after => '0002-10-31 00:00:00+00 BC', count => 4);
SELECT revenant.preview_schedule('11 months', after => '0002-12-31 00:00:00+00 BC', count => 4);
SELECT revenant.preview_schedule('1 month', after => '294276-11-30 00:00:00+00', count => 4);
SELECT revenant.preview_schedule('0 0 1 2 *', 'UTC', '294275-12-31 00:00:00+00', 3);

/* ---- daylight saving: a time that is skipped comes at the end of the gap, one that comes twice is run once */

SELECT z AS zone, t AT TIME ZONE z AS wall, t AS utc FROM (VALUES ('Europe/Berlin', '2026-03-28 12:00+00'::timestamptz), ('America/New_York', '2026-03-07 12:00+00')) AS p (z, a),
	revenant.preview_schedule('30 2 * * *', z, a, 3) AS t;
SELECT z AS zone, t AT TIME ZONE z AS wall, t AS utc FROM (VALUES ('Europe/Berlin', '2026-10-24 12:00+00'::timestamptz), ('America/New_York', '2026-10-31 12:00+00')) AS p (z, a),
	revenant.preview_schedule('30 ' || CASE z WHEN 'Europe/Berlin' THEN 2 ELSE 1 END || ' * * *', z, a, 3) AS t;
-- Every half hour: neither more than one run for what was skipped, nor any for what is shown again.
SELECT string_agg(to_char(t AT TIME ZONE 'Europe/Berlin', 'HH24:MI'), ' ' ORDER BY t) FROM revenant.preview_schedule('*/30 * * * *', 'Europe/Berlin', '2026-03-28 23:40+00', 8) AS t;
SELECT string_agg(to_char(t AT TIME ZONE 'Europe/Berlin', 'HH24:MI'), ' ' ORDER BY t) FROM revenant.preview_schedule('*/30 * * * *', 'Europe/Berlin', '2026-10-24 22:40+00', 8) AS t;
-- From the middle of the hour that is shown for the second time.
SELECT t FROM revenant.preview_schedule('*/30 * * * *', 'Europe/Berlin', '2026-10-25 01:10+00', 2) AS t;

/* ---- the time zone: the database's, whatever the session has */

SELECT current_database() AS db \gset
ALTER DATABASE :"db" SET TimeZone = 'Asia/Tokyo';
SELECT t FROM revenant.preview_schedule('0 9 * * *', after => '2026-01-01 00:00:00+00', count => 1) AS t;
SELECT t FROM revenant.preview_schedule('0 9 * * *', 'Europe/Berlin', '2026-01-01 00:00:00+00', 1) AS t;
ALTER DATABASE :"db" RESET TimeZone;

/* ---- mistakes */

\set VERBOSITY default
SELECT revenant.preview_schedule('60 * * * *');
SELECT revenant.preview_schedule('* * * foo *');
SELECT revenant.preview_schedule('*/5 * * * fri-mon');
SELECT revenant.preview_schedule('* * * * L');
SELECT revenant.preview_schedule('0 0 31 2 *');
SELECT revenant.preview_schedule('* * * *');
SELECT revenant.preview_schedule('5');
SELECT revenant.preview_schedule('10:00');
SELECT revenant.preview_schedule('@sometimes');
SELECT revenant.preview_schedule('');
SELECT revenant.preview_schedule('* * * * *', 'Nowhere/Land');
SELECT revenant.preview_schedule('5 min', 'UTC');
SELECT revenant.create_task('calendar', '*/5 * * * *', 'SELECT 1');
\set VERBOSITY sqlstate
SELECT revenant.preview_schedule(NULL);
SELECT revenant.preview_schedule('* * * * *', after => NULL);
SELECT revenant.preview_schedule('* * * * *', count => NULL);
SELECT revenant.preview_schedule('* * * * *', count => -1);
SELECT revenant.preview_schedule('* * * * *', count => 1001);
SELECT revenant.preview_schedule('* * * * *', after => 'infinity');
SELECT count(*) FROM revenant.preview_schedule('* * * * *', count => 0);
SELECT count(*) FROM revenant.preview_schedule('* * * * *', count => 1000);
SELECT revenant.create_task('calendar', 'SELECT 1', timezone => 'UTC');

/* ---- far ends */

SELECT count(*) FROM revenant.preview_schedule('0 0 1 1 *', 'UTC', '294200-01-01 00:00:00+00', 1000);
SELECT t FROM revenant.preview_schedule('0 0 1 1 *', 'UTC', '4712-01-02 00:00:00+00 BC', 1) AS t;
SELECT t FROM revenant.preview_schedule('0 0 29 2 *', 'UTC', '1896-03-01 00:00:00+00', 1) AS t;

RESET TimeZone;
RESET DateStyle;
