# All that the catalogs say of the extension's objects, so that two databases can be compared.

package Catalog;

use strict;
use warnings;

use Exporter 'import';

our @EXPORT = qw(catalog differences);

# A line for each fact: of which object, what, and how it is. What only some majors have, or the debug build, is no fact.
my $facts = q{
WITH member AS (
	SELECT d.classid, d.objid, i.type, i.identity,
		CASE WHEN d.classid = 'pg_class'::regclass THEN d.objid ELSE (SELECT t.typrelid FROM pg_type AS t WHERE d.classid = 'pg_type'::regclass AND t.oid = d.objid) END AS relation
	FROM pg_extension AS e
	JOIN pg_depend AS d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e'
	CROSS JOIN LATERAL pg_identify_object(d.classid, d.objid, 0) AS i
	-- from 17 on a table's row type and arrays are members, too
	WHERE e.extname = 'revenant' AND i.identity NOT LIKE 'revenant.\_debug\_%' 
		AND NOT EXISTS (SELECT FROM pg_type AS t LEFT JOIN pg_class AS c ON c.oid = t.typrelid WHERE d.classid = 'pg_type'::regclass AND t.oid = d.objid AND c.relkind IS DISTINCT FROM 'c')
), owned AS (
	SELECT m.*, p.proowner AS owner, coalesce(p.proacl, acldefault('f', p.proowner)) AS acl FROM member AS m JOIN pg_proc AS p ON m.classid = 'pg_proc'::regclass AND p.oid = m.objid
	UNION ALL
	SELECT m.*, t.typowner, coalesce(t.typacl, acldefault('T', t.typowner)) FROM member AS m JOIN pg_type AS t ON m.classid = 'pg_type'::regclass AND t.oid = m.objid
	UNION ALL
	SELECT m.*, c.relowner, coalesce(c.relacl, acldefault(CASE c.relkind WHEN 'S' THEN 's' ELSE 'r' END::"char", c.relowner)) FROM member AS m JOIN pg_class AS c ON m.classid = 'pg_class'::regclass AND c.oid = m.objid
	UNION ALL
	SELECT m.*, n.nspowner, coalesce(n.nspacl, acldefault('n', n.nspowner)) FROM member AS m JOIN pg_namespace AS n ON m.classid = 'pg_namespace'::regclass AND n.oid = m.objid
), fact (object, what, how) AS (
	SELECT 'extension', 'itself', concat_ws(' ', e.extversion, e.extrelocatable, e.extnamespace::regnamespace, e.extowner::regrole) FROM pg_extension AS e WHERE e.extname = 'revenant'
	UNION ALL
	SELECT 'extension', 'dumps', concat_ws(' ', c.oid::regclass, c.condition) FROM pg_extension AS e, unnest(e.extconfig, e.extcondition) AS c (oid, condition) WHERE e.extname = 'revenant'
	UNION ALL
	SELECT m.identity, 'is a', m.type FROM member AS m
	UNION ALL
	SELECT o.identity, 'belongs to', o.owner::regrole::text FROM owned AS o
	UNION ALL
	SELECT o.identity, 'grants', concat_ws(' ', a.privilege_type, a.is_grantable, 'to', a.grantee::regrole, 'by', a.grantor::regrole) FROM owned AS o, aclexplode(o.acl) AS a WHERE a.privilege_type <> 'MAINTAIN'
	UNION ALL
	SELECT m.identity, 'granted at first ' || i.objsubid, concat_ws(' ', a.privilege_type, a.is_grantable, 'to', a.grantee::regrole, 'by', a.grantor::regrole)
	FROM owned AS m JOIN pg_init_privs AS i ON i.classoid = m.classid AND i.objoid = m.objid, aclexplode(i.initprivs) AS a
	-- that an owner has all that it has anyway is not always written down
	WHERE m.classid = 'pg_proc'::regclass OR a.grantee <> m.owner
	UNION ALL
	SELECT m.identity, 'is described ' || d.objsubid, d.description FROM member AS m JOIN pg_description AS d ON (d.classoid, d.objoid) IN ((m.classid, m.objid), ('pg_class'::regclass, m.relation))
	UNION ALL
	SELECT m.identity, 'is defined', pg_get_functiondef(p.oid) FROM member AS m JOIN pg_proc AS p ON m.classid = 'pg_proc'::regclass AND p.oid = m.objid
	UNION ALL
	SELECT m.identity, 'is defined', pg_get_viewdef(c.oid) FROM member AS m JOIN pg_class AS c ON c.oid = m.relation WHERE c.relkind = 'v'
	UNION ALL
	SELECT m.identity, 'is kept', concat_ws(' ', c.relkind, c.relpersistence, c.relreplident, c.relrowsecurity, c.relforcerowsecurity, c.relispartition, c.reloptions) FROM member AS m JOIN pg_class AS c ON c.oid = m.relation
	UNION ALL
	SELECT m.identity, 'counts', concat_ws(' ', s.seqtypid::regtype, s.seqstart, s.seqincrement, s.seqmax, s.seqmin, s.seqcache, s.seqcycle) FROM member AS m JOIN pg_sequence AS s ON s.seqrelid = m.relation
	UNION ALL
	SELECT m.identity, 'column ' || a.attnum, concat_ws(' ', a.attname, a.attisdropped, CASE WHEN NOT a.attisdropped THEN format_type(a.atttypid, a.atttypmod) END,
		(SELECT c.collname FROM pg_collation AS c WHERE c.oid = a.attcollation), a.attnotnull, a.attidentity, a.attgenerated, a.attstorage, a.attcompression, a.attacl,
		-- the server numbers some of them
		(SELECT nullif(array_agg(o), '{}') FROM unnest(a.attoptions) AS o WHERE o NOT LIKE 'pg\_attver=%'),
		(SELECT 'default ' || pg_get_expr(d.adbin, d.adrelid) FROM pg_attrdef AS d WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum))
	FROM member AS m JOIN pg_attribute AS a ON a.attrelid = m.relation AND a.attnum > 0
	UNION ALL
	SELECT m.identity, 'constraint ' || c.conname, concat_ws(' ', pg_get_constraintdef(c.oid), c.convalidated, c.conislocal, obj_description(c.oid, 'pg_constraint'))
	FROM member AS m JOIN pg_constraint AS c ON c.conrelid = m.relation WHERE c.contype <> 'n'
	UNION ALL
	SELECT m.identity, 'index', concat_ws(' ', pg_get_indexdef(i.indexrelid), i.indisvalid, i.indisreplident, i.indisclustered, obj_description(i.indexrelid, 'pg_class')) FROM member AS m JOIN pg_index AS i ON i.indrelid = m.relation
	UNION ALL
	SELECT m.identity, 'trigger', concat_ws(' ', pg_get_triggerdef(t.oid), t.tgenabled) FROM member AS m JOIN pg_trigger AS t ON t.tgrelid = m.relation AND NOT t.tgisinternal
	UNION ALL
	SELECT m.identity, 'rule', pg_get_ruledef(r.oid) FROM member AS m JOIN pg_rewrite AS r ON r.ev_class = m.relation AND r.rulename <> '_RETURN'
	UNION ALL
	SELECT m.identity, 'policy', concat_ws(' ', p.*) FROM member AS m JOIN pg_policy AS p ON p.polrelid = m.relation
	UNION ALL
	SELECT 'extension', 'levels', concat_ws(' ', u.level, u.privilege, u.object) FROM revenant._usage_object AS u
)
SELECT concat_ws(' | ', object, what, replace(how, E'\n', ' ')) FROM fact ORDER BY 1
};

# The facts, as lines; with some statements before, which are undone.
sub catalog
{
	my ($node, $database, $statements) = @_;

	# what the statements answer goes nowhere
	return $node->safe_psql($database, join "\n", 'BEGIN;', '\o /dev/null', ($statements // 'SELECT 1') . ';', '\o', "$facts;", 'ROLLBACK;');
}

# Lines that only one of two has, marked by < and >.
sub differences
{
	my ($left, $right) = @_;
	my %count;

	$count{$_}++ foreach split /\n/, $left;
	$count{$_}-- foreach split /\n/, $right;
	return join "\n", map { ($count{$_} > 0 ? '< ' : '> ') . $_ } grep { $count{$_} != 0 } sort keys %count;
}

1;
