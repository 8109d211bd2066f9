# Members that join, leave, die, come twice, decline or are slow: each split is worked on by one of them, goes on where it was, moves no more than it has to, not
# before rebalance_delay, and only a member that died costs an attempt.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Asks;
use Crew;
use List::Util qw(sum);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $splits = 24;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', 'log_statement = none');
$node->start;
asks($node);
sql("CREATE EXTENSION revenant;
	CREATE TABLE effects (split text, n int, worker text, epoch bigint);
	SELECT revenant.create_plan('job', lease_ttl => '30 s', max_in_flight => 100, rebalance_delay => '1 s', drain_deadline => '20 s');
	SELECT revenant.publish('job', revenant.lead_plan('job', 'test'), (SELECT jsonb_agg(jsonb_build_object('id', 'split ' || i)) FROM generate_series(1, $splits) AS i))");

# A member: it polls, and does another step of each split that it owns, until it is told to leave. Orders: drain, hold, decline, ignore (what it does with what
# it is asked for); join N (again, with this capacity); leave.
sub member
{
	my ($name, $ttl) = @_;

	return Crew->hire(
		$node,
		sub {
			my ($worker) = @_;
			my ($member, $seen, $joined_by, %own, %asked);
			my $must = sub { $worker->try($_[0]) // die $worker->{failure} };
			my $call = sub { my ($function, $split) = @_; return $worker->try("SELECT revenant.$function('job', '$split', $own{$split}[0])") };
			my $join = sub {
				$member = $must->("SELECT revenant.join_plan('job', '$name', $_[0], '$ttl')");
				$seen = 0;
				%own = %asked = ();
				$worker->say("joined $member");
			};
			my %react = (
				gained => sub {
					my ($split, $epoch, $progress) = @_;

					die "$split was gained twice" if $own{$split};
					$own{$split} = [ $epoch, $progress || 0 ];
				},
				revoke => sub { $asked{ $_[0] } = 1; $worker->say("asked for $_[0] at " . $must->('SELECT clock_timestamp()')) },
				revoke_cancelled => sub { delete $asked{ $_[0] }; $worker->say("may keep $_[0]") },
				lost => sub {
					my ($split, $epoch, undef, $reason) = @_;

					$worker->say("lost $split $reason");
					delete $_->{$split} foreach \%own, \%asked;
					die "$split was lost and can be committed" if defined $worker->try("INSERT INTO effects VALUES ('$split', 0, '$name', $epoch); SELECT revenant.commit_split('job', '$split', $epoch, '0')");
					$worker->say("late $split $worker->{failure}");
				},
			);

			$join->('NULL');
			while (1)
			{
				my $order = $worker->order || 'drain';

				if ($order =~ /^join (.+)/ && $order ne ($joined_by // ''))
				{
					$joined_by = $order;
					$join->($1);
				}
				if ($order eq 'leave')
				{
					$worker->say('left ' . $must->("SELECT revenant.leave_plan('job', $member)"));
					return;
				}
				my $news = $worker->try("SELECT seq, event, split, epoch, progress, detail ->> 'reason' FROM revenant.poll_plan('job', $member, $seen)");
				if (!defined $news)
				{
					$worker->say("refused $worker->{failure}");
					return;
				}
				foreach (split /\n/, $news)
				{
					my ($seq, $event, @rest) = split /\|/;

					die "$event comes after a later one" if $seq <= $seen;
					$seen = $seq;
					$react{$event}->(@rest);
				}
				foreach my $split (grep { $own{$_} } sort keys %asked)
				{
					last if $order eq 'hold' || $order eq 'ignore';
					if ($order eq 'decline')
					{
						$call->('decline_revoke', $split) // die $worker->{failure};
						$worker->say("declined $split");
					}
					else
					{
						$call->('drained', $split) // die $worker->{failure};
						$worker->say("drained $split");
						delete $own{$split};
					}
					delete $asked{$split};
				}
				foreach my $split (sort keys %own)
				{
					my ($epoch, $done) = @{ $own{$split} };
					my $n = $done + 1;

					if (defined $worker->try("INSERT INTO effects VALUES ('$split', $n, '$name', $epoch); SELECT revenant.commit_split('job', '$split', $epoch, '$n', $n)"))
					{
						$own{$split}[1] = $n;
						next;
					}
					$worker->say("fenced $split $worker->{failure}");
					delete $own{$split};
				}
				select undef, undef, undef, 0.05;
			}
		});
}

my %crew;
sub hire { my ($name, $ttl) = @_; $crew{$name} = member($name, $ttl // '20 s'); ok($crew{$name}->says('^joined'), "$name joins"); return $crew{$name} }

# How many times it said something.
sub said { my ($name, $what) = @_; return scalar(grep { /$what/ } $crew{$name}->lines) }

# What is counted of the plan.
sub counted { return sql("SELECT $_[0] FROM revenant.stat_plans") }

# Waits until each member owns so many, and nothing is on the move.
sub settles
{
	my ($expected, $name) = @_;

	return becomes("SELECT string_agg(worker || ' ' || owned, ', ' ORDER BY worker) = '$expected' AND (SELECT draining = 0 AND owned = $splits FROM revenant.stat_plans) FROM revenant.members", $name)
	  || diag(sql("SELECT string_agg(worker || ' ' || owned, ', ' ORDER BY worker) FROM revenant.members"), join "\n", map { "$_: " . join(', ', grep { /^(died|refused)/ } $crew{$_}->lines) } sort keys %crew);
}

# ---- one, and another

hire('a');
settles("a $splits", 'the only one has it all');
$crew{a}->tell('hold');
hire('b');
my $joined = sql("SELECT joined_at FROM revenant.members WHERE worker = 'b'");
ok($crew{a}->says('^asked for'), 'another one is to have some');
my ($asked_at) = map { /^asked for .* at (.*)/ ? $1 : () } $crew{a}->lines;
is(sql("SELECT '$asked_at'::timestamptz - '$joined' >= '1 s'"), 't', 'not before rebalance_delay');
is(counted('revocations_requested'), $splits / 2, 'half of it');
is(sql("SELECT owned FROM revenant.members WHERE worker = 'a'"), $splits, 'the first one has them all until it hands them over');

# ---- a third one, while that is going on

hire('c');
$crew{a}->tell('drain');
settles('a 8, b 8, c 8', 'a third one that joins during the drain has its share');
cmp_ok(counted('revocations_requested'), '<=', 16, 'and nothing has moved twice');
is(counted('revocations_drained = revocations_requested AND acquired_reassigned = revocations_drained'), 't', 'what moved was handed over');
is(counted('lost_revoked + lost_expired + lost_starved + lost_fenced + revocations_cancelled + failures + releases'), 0, 'and nothing else happened');

# ---- one that declines

$crew{a}->tell('decline');
my $before = counted('revocations_requested');
hire('d', '4 s');
becomes("SELECT owned >= 5 FROM revenant.members WHERE worker = 'd'", 'a fourth one has its share');
becomes("SELECT string_agg(owned::text, ' ' ORDER BY owned) = '5 5 6 8' AND max(owned) FILTER (WHERE worker = 'a') = 8 AND (SELECT draining = 0 FROM revenant.stat_plans) FROM revenant.members",
	'though one of them keeps all that it has');
is(counted('revocations_declined'), said('a', '^declined'), 'which it said');
cmp_ok(said('a', '^declined'), '>', 0, 'since it was asked');
cmp_ok(said('a', '^declined'), '<=', 8, 'once for each');
is(counted('revocations_requested') - $before - said('a', '^declined'), sql("SELECT owned FROM revenant.members WHERE worker = 'd'"), 'and the others for no more than was needed');

# ---- one that is too slow

sql("SELECT revenant.alter_plan('job', '{\"drain_deadline\": \"500 ms\"}')");
$crew{$_}->tell('ignore') foreach 'a', 'b', 'c';
my $declined = counted('revocations_declined');
hire('e');
becomes('SELECT revocations_forced > 0 FROM revenant.stat_plans', 'what is not handed over in time is taken away');
becomes("SELECT owned >= 4 FROM revenant.members WHERE worker = 'e'", 'and given to who is to have it');
my @slow = grep { said($_, '^lost .* revoked') } 'a', 'b', 'c';
cmp_ok(scalar(@slow), '>', 0, 'who had it is told');
is(sum(map { said($_, '^lost') } @slow), sum(map { said($_, '^late .* RV001') } @slow), 'what it does too late is refused');
$crew{$_}->tell('drain') foreach 'a', 'b', 'c';
sql("SELECT revenant.alter_plan('job', '{\"drain_deadline\": \"20 s\"}')");
is(counted('lost_revoked'), counted('revocations_forced'), 'that is how they were lost');
is(sql("SELECT count(*) FROM revenant.splits WHERE reasons IS NOT NULL OR attempts > 0"), 0, 'and no attempt was used up so far');

# ---- one that leaves

my $owned = sql("SELECT owned FROM revenant.members WHERE worker = 'c'");
my $requested = counted('revocations_requested');
$crew{c}->tell('leave');
ok($crew{c}->finish, 'one leaves');
my ($left) = map { /^left (\d+)/ ? $1 : () } $crew{c}->lines;
cmp_ok($left, '>=', 4, 'with what it had');
becomes("SELECT owned = $splits AND live_members = 4 FROM revenant.stat_plans", 'others have that at once');
is(counted('releases'), $left, 'it was released');
is(sql("SELECT count(*) FROM revenant.splits WHERE reasons IS NOT NULL OR attempts > 0"), 0, 'which uses up no attempt');

# ---- one that dies

my $gone = sql("SELECT array_agg(split ORDER BY split) FROM revenant.splits WHERE worker = 'd' AND state = 'owned'");
$crew{d}->signal('STOP');
$gone = sql("SELECT array_agg(split ORDER BY split) FROM revenant.splits WHERE worker = 'd' AND state = 'owned'");
my $deadline = sql("SELECT deadline FROM revenant.members WHERE worker = 'd'");
$crew{d}->kill;
becomes('SELECT lost_expired > 0 FROM revenant.stat_plans', 'one dies, and is noticed');
is(sql("SELECT clock_timestamp() >= '$deadline'"), 't', 'at its deadline');
becomes("SELECT owned = $splits AND live_members = 3 FROM revenant.stat_plans", 'others have what it had, at once');
is(sql('SELECT array_agg(split ORDER BY split) FROM revenant.splits WHERE reasons IS NOT NULL'), $gone, 'which were attempts');
is(counted('lost_expired, acquired_expired'), sql("SELECT cardinality('$gone'::text[]), cardinality('$gone'::text[])"), 'so many');

# ---- one that comes twice

my $had = sql("SELECT string_agg(split, ', ' ORDER BY split) FROM revenant.splits WHERE worker = 'a' AND state = 'owned'");
my $first = $crew{a};
my $twin = hire('a');
ok($first->finish, 'who was there by its name ends');
like(join("\n", $first->lines), qr/^refused RV001 another worker joined plan "job" as "a"/m, 'and is told why');
is(sql("SELECT string_agg(split, ', ' ORDER BY split) FROM revenant.splits WHERE worker = 'a' AND state = 'owned'"), $had, 'the other one goes on with what it had');
is(counted('lost_fenced'), scalar(split /, /, $had), 'under new epochs');
becomes("SELECT count(*) FILTER (WHERE e.n IS NOT NULL) = count(*) FROM revenant.splits AS s LEFT JOIN LATERAL (SELECT * FROM effects AS e WHERE e.split = s.split AND e.epoch = s.epoch LIMIT 1) AS e ON true WHERE s.worker = 'a'", 'it does some of each');
settles('a 8, b 8, e 8', 'the three have their shares');

# ---- one that changes its capacity

$requested = counted('revocations_requested');
$crew{e}->tell('join 2');
settles('a 11, b 11, e 2', 'one that wants less has less');
is(counted('revocations_requested') - $requested, 6, 'only what is too much for it has moved');
$crew{e}->tell('join 100');
settles('a 8, b 8, e 8', 'it wants more, and has it');
is(counted('revocations_requested') - $requested, 12, 'by as many moves');

# ---- what was asked for is not wanted any more

sql("SELECT revenant.alter_plan('job', '{\"drain_deadline\": \"3 s\"}')");
$crew{$_}->tell('hold') foreach 'a', 'b', 'e';
hire('f');
becomes('SELECT draining = 6 FROM revenant.stat_plans', 'another one is to have some');
$crew{f}->tell('leave');
ok($crew{f}->finish, 'but leaves');
settles('a 8, b 8, e 8', 'so nobody has to hand over anything');
is(counted('revocations_cancelled'), 6, 'as they are told');
ok($crew{$_}->says('^may keep', 2), "$_ with its next poll") foreach 'a', 'b', 'e';
is(sum(map { said($_, '^may keep') } 'a', 'b', 'e'), 6, 'each of them');
hire('g');
becomes('SELECT draining = 6 FROM revenant.stat_plans', 'once more');
$crew{a}->signal('STOP');
$crew{g}->tell('leave');
ok($crew{g}->finish, 'it leaves, too');
becomes('SELECT lost_starved = 2 FROM revenant.stat_plans', 'from who says nothing to that the splits are taken');
is(counted('revocations_cancelled, lost_revoked - revocations_forced'), '12|0', 'which were not to be handed over any more');
$crew{a}->signal('CONT');
$crew{$_}->tell('drain') foreach 'a', 'b', 'e';
settles('a 8, b 8, e 8', 'and given to somebody');
ok($crew{a}->says('^lost .* starved', 2), 'as it is told when it is back');

# ---- what came of it

foreach my $name ('a', 'b', 'e')
{
	$crew{$name}->tell('leave');
	ok($crew{$name}->finish, "$name leaves") or diag(join "\n", $crew{$name}->lines);
}
is(sql('SELECT count(*) FROM revenant.members'), 0, 'nobody is left');
is(sql("SELECT count(*) FROM revenant.splits WHERE state = 'runnable'"), $splits, 'anybody may have what they had');
is(sql('SELECT count(*) FROM (SELECT split FROM effects GROUP BY split HAVING count(*) <> max(n) OR count(DISTINCT n) <> max(n)) AS t'), 0, 'each step of each split was done once, and none was left out');
is(sql('SELECT count(*) FROM revenant.splits AS s WHERE s.watermark IS DISTINCT FROM (SELECT max(n) FROM effects AS e WHERE e.split = s.split)'), 0, 'as its progress says');
is(sql('SELECT count(*) FROM effects AS e JOIN effects AS f ON f.split = e.split AND f.n > e.n AND f.epoch < e.epoch'), 0, 'no older epoch came after a newer one');
is(sql('SELECT array_agg(split ORDER BY split) FROM revenant.splits WHERE reasons IS NOT NULL'), $gone, 'and only the death of a member used up attempts');

$node->stop;
done_testing();
