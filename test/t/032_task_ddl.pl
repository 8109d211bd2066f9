# Our workers are in nobody's way: whatever they do, a command that needs their database, their extension or their role gets it at
# once; and work goes on after it, also after one that failed or was undone. Who may not run a command stops nothing by trying.
#
# It is a matrix of two tables: what the workers do (%state, each in a database of that name) and the commands (@commands). A command
# is sent to all of these databases at the same time.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use Asks;
use Client qw(answers monotonic);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# What the workers of a database do: its tasks, and what is seen of them in pg_stat_activity.
my %state = (
	idle => { seen => 'sleeps supervises', tasks => { daemon => q{'SELECT pg_sleep(3600)'} } },
	busy => { seen => 'loops supervises', tasks => { daemon => q{'DO $$ BEGIN LOOP END LOOP; END $$'} } },
	claiming => {
		seen => 'claims sleeps supervises',
		tasks => { map { $_ => q{'SELECT pg_sleep(3600)', lease => 'shared'} } 'one', 'other' }
	},
	scheduled => { seen => 'supervises', tasks => { later => q{'SELECT 1', '1 h'} } },
	# in a transaction that has locked a table of the extension
	locking => { seen => 'sleeps supervises', tasks => { daemon => q{'BEGIN; TABLE revenant.lease; SELECT pg_sleep(3600)'} } });
my @states = sort keys %state;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "max_worker_processes = 60\nrevenant.max_runners = 30\nautovacuum = off");
$node->start;
asks($node);
my $watch = Client->new($node);
my $log;
my $major = sql("SELECT current_setting('server_version_num')::int / 10000");

# The version that is installed by default; from and to another one, an update needs all of its tables for itself.
my $version = sql("SELECT default_version FROM pg_available_extensions WHERE name = 'revenant'");
my $scripts = `pg_config --sharedir`;
chomp $scripts;
my @scripts = map { "$scripts/extension/revenant--$_.sql" } "$version--other", "other--$version";
append_to_file($_, "LOCK TABLE revenant.task, revenant.task_state, revenant.lease IN ACCESS EXCLUSIVE MODE;\n") foreach @scripts;
END { unlink @scripts }

# --- databases and their tasks

my ($space, $other_space) = (PostgreSQL::Test::Utils::tempdir_short(), PostgreSQL::Test::Utils::tempdir_short());
sql($_) foreach "CREATE TABLESPACE elsewhere LOCATION '$space'", "CREATE TABLESPACE forbidden LOCATION '$other_space'",
  'CREATE ROLE owner LOGIN CREATEDB SUPERUSER; CREATE ROLE member LOGIN IN ROLE owner; CREATE ROLE creator LOGIN CREATEDB CREATEROLE;
	CREATE ROLE stranger LOGIN; CREATE ROLE landed ROLE owner; GRANT CREATE ON TABLESPACE elsewhere, pg_default TO landed',
  'CREATE DATABASE bare OWNER owner IS_TEMPLATE true';
$node->safe_psql('bare', 'SET SESSION AUTHORIZATION owner; CREATE EXTENSION revenant;
	GRANT USAGE ON SCHEMA revenant TO PUBLIC; GRANT SELECT ON revenant.lease TO PUBLIC');
# who owns the extension need not be a superuser from then on
sql('ALTER ROLE owner NOSUPERUSER');

# Ends sessions, and returns when they are really gone.
sub leave
{
	my $pids = join ',', map { $_->{pid} } @_;

	$_->quit foreach @_;
	$watch->becomes("SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid IN ($pids))") or die 'a session does not end';
	return;
}

# each_does($user, $inside, $command, @before): the command for every database at the same time, in a session of its own, which is in
# that database if $inside. Returns the sessions by state; `stuck` is what one waited for that took too long.
sub each_does
{
	my ($user, $inside, $command, @before) = @_;
	my %session;

	unshift @before, "SET SESSION AUTHORIZATION $user" if $user ne 'super';
	foreach my $state (@states)
	{
		$session{$state} = Client->new($node, $inside ? $state : 'postgres');
		$session{$state}->query($_) foreach @before;
	}
	$session{$_}->send($command =~ s/%s/$_/gr) foreach @states;
	answers(monotonic() + 12, values %session);
	foreach my $one (grep { $_->{busy} } values %session)
	{
		$one->{stuck} = $watch->query("SELECT concat_ws(' ', wait_event_type, wait_event,
				array(SELECT backend_type FROM pg_stat_activity WHERE pid = ANY (pg_blocking_pids(a.pid))))
			FROM pg_stat_activity AS a WHERE pid = $one->{pid}");
		$watch->query("SELECT pg_cancel_backend($one->{pid})");
		answers(monotonic() + 12, $one);
	}
	return %session;
}

# The same by a superuser, to prepare or to clean up.
sub each_database
{
	my ($inside, $command) = @_;
	my %session = each_does('super', $inside, $command);
	my @wrong = map { "$_: $session{$_}{error}" } grep { defined $session{$_}{error} } @states;

	die "$command: @wrong" if @wrong;
	leave(values %session);
	return;
}

sub make_roles { each_database(0, q{DO 'BEGIN CREATE ROLE runs_%s LOGIN; GRANT runs_%s TO creator WITH ADMIN OPTION; END'}); return }

sub make_tasks
{
	foreach my $state (@states)
	{
		my $inside = Client->new($node, $state);
		$inside->query("SELECT revenant.create_task('$_', $state{$state}{tasks}{$_}, run_as => 'runs_$state', backoff_min => '10 ms')")
		  foreach sort keys %{ $state{$state}{tasks} };
		leave($inside);
	}
	return;
}

sub make
{
	each_database(0, 'CREATE DATABASE %s TEMPLATE bare OWNER owner');
	make_tasks();
	return;
}

# What the workers of a database are seen to do, as a query.
sub seen
{
	my ($database) = @_;

	return "SELECT coalesce(string_agg(what, ' ' ORDER BY what), 'nothing') FROM (
		SELECT CASE WHEN backend_type = 'revenant supervisor' THEN 'supervises' WHEN wait_event = 'PgSleep' THEN 'sleeps'
			WHEN wait_event_type = 'Lock' THEN 'claims' WHEN wait_event IS NULL AND query LIKE 'DO %' THEN 'loops' ELSE 'is there' END AS what
		FROM pg_stat_activity WHERE datname = '$database' AND backend_type LIKE 'revenant%') AS w";
}

# What is wrong in a database whose workers are to do what the state says; empty if nothing is.
sub trouble
{
	my ($database, $state) = @_;
	my %phase = (sleeps => 'leading', loops => 'leading', claims => 'claiming');
	my $phases = join(' ', grep { $_ } map { $phase{$_} } split / /, $state{$state}{seen}) || 'scheduled';

	$phases = 'claiming leading' if $phases eq 'leading claiming';
	return 'its workers: ' . $watch->query(seen($database))
	  unless $watch->becomes('SELECT (' . seen($database) . ") = '$state{$state}{seen}'");
	my $inside = Client->new($node, $database);
	my $trouble = $inside->becomes("SELECT string_agg(phase, ' ' ORDER BY phase) = '$phases' AND sum(failures) = 0 FROM revenant.tasks") ? '' :
	  $inside->query("SELECT string_agg(concat_ws(' ', name, phase, failures, reason, last_error), ', ') FROM revenant.tasks");
	leave($inside);
	return $trouble;
}

# The workers of all states do what they should, in the databases that are named so.
sub all_work
{
	my ($name, $databases) = @_;
	my %trouble = map { my $database = ($databases // '%s') =~ s/%s/$_/r; $_ => trouble($database, $_) } @states;

	is(join("\n", map { "$_: $trouble{$_}" } grep { $trouble{$_} } @states), '', $name);
	return;
}

# Who works, by state.
sub workers
{
	return { map { $_ => $watch->query("SELECT string_agg(pid::text, ' ' ORDER BY pid) FROM pg_stat_activity
		WHERE datname = '$_' AND backend_type LIKE 'revenant%'") } @states };
}

# --- commands

# A command in every database ends in time, with this SQLSTATE, or without an error if that is ''. Returns the sessions.
sub ends
{
	my ($case, $user, $sqlstate, $name, $command, @before) = @_;
	my %session = each_does($user, $case->{inside}, $command, @before);
	my @wrong;

	foreach my $state (@states)
	{
		my $one = $session{$state};
		my $error = $one->{error} // '';
		my $took = $one->{got} - $one->{sent};

		push @wrong, "$state: " . ($error || 'no error') if substr($error, 0, 5) ne $sqlstate;
		push @wrong, sprintf('%s: it took %.2f s, %s', $state, $took, $one->{stuck} // '') if $took > $case->{limit};
	}
	is(join("\n", @wrong), '', join ' ', "$user: $command", $name, $sqlstate);
	return values %session;
}

# A command in each database, by everybody, to every end.
sub try_all
{
	my ($case) = @_;
	my $command = $case->{command};
	my $before = workers();

	foreach my $user (sort keys %{ $case->{refused} })
	{
		leave(ends($case, $user, $case->{refused}{$user}, 'is refused', $command));
		is_deeply(workers(), $before, '... and no worker has noticed');
	}
	foreach my $user ($case->{alone} ? @{ $case->{may} } : ())
	{
		leave(ends($case, $user, '25001', 'is refused in a block', $command, 'BEGIN'));
		is_deeply(workers(), $before, '... and no worker has noticed');
	}
	foreach my $user (@{ $case->{may} })
	{
		foreach my $way (@{ $case->{fails} })
		{
			next if $way->{user} && $way->{user} ne $user;
			$way->{before}->() if $way->{before};
			leave(ends($case, $user, $way->{error}, $way->{name}, $way->{command} // $command, $way->{timeout} ? 'SET statement_timeout = 500' : ()));
			$way->{after}->() if $way->{after};
			all_work('... and work goes on');
		}
		next if $case->{alone};
		my @sessions = ends($case, $user, '', 'is done and rolled back', $command, 'BEGIN');
		$_->query('ROLLBACK') foreach @sessions;
		leave(@sessions);
		all_work('... and work goes on');
		@sessions = ends($case, $user, '', 'is done and rolled back to a savepoint', $command, 'BEGIN', 'SAVEPOINT s');
		$_->query('ROLLBACK TO s') foreach @sessions;
		all_work('... and work goes on before the transaction has ended');
		leave(@sessions);
		leave(ends($case, $user, '', 'is done, and its session ends without a commit', $command, 'BEGIN'));
		all_work('... and work goes on');
	}
	is_deeply(workers(), $before, 'no worker has noticed any of that') if $case->{quiet};
	foreach my $user (@{ $case->{may} })
	{
		$case->{before}->() if $case->{before};
		$before = workers();
		leave(ends($case, $user, '', 'is done', $command));
		$case->{after}->($before);
	}
	return;
}

# Another session in each database, of a superuser
my @guests;
sub let_in { push @guests, map { Client->new($node, $_) } @states; return }
sub let_out { leave(splice @guests); return }
my $occupied = { name => 'is cancelled while it waits for somebody else', before => \&let_in, after => \&let_out, timeout => 1, error => '57014' };

sub inside { my ($command) = @_; return sub { each_database(1, $command) } }
my $subscribed = {
	name => 'fails since there is a subscription', error => '55006',
	before => inside(q{CREATE SUBSCRIPTION "sub_%s" CONNECTION 'dbname=none' PUBLICATION p WITH (connect = false, slot_name = NONE)}),
	after => inside('DROP SUBSCRIPTION "sub_%s"') };

sub all_are_new
{
	my ($before, $name) = @_;
	my $now = workers();

	is(join(' ', grep { $now->{$_} eq $before->{$_} } @states), '', $name);
	return;
}

sub database_gone
{
	is($watch->query("SELECT count(*) FROM pg_database WHERE datname IN ('" . join("','", @states) . "')"), 0, '... and they are gone');
	make();
	all_work('... and others of the same names work');
	return;
}

sub extension_gone
{
	my @left = grep { !$watch->becomes('SELECT (' . seen($_) . ") = 'nothing'") } @states;

	is("@left", '', '... and nothing of ours runs there any more');
	each_database(0, 'DROP DATABASE %s');
	make();
	all_work('... and others of the same names work');
	return;
}

sub held
{
	my ($reason) = @_;

	foreach my $state (@states)
	{
		my $inside = Client->new($node, $state);
		ok($inside->becomes("SELECT bool_and(phase = 'held' AND reason LIKE '%$reason%' AND pid IS NULL) FROM revenant.tasks"),
			"... and $state: held, since its role $reason");
		is($watch->query(seen($state)), 'supervises', '... and not running');
		leave($inside);
	}
	return;
}

# What becomes of a task whose role may not log in.
sub locked_out
{
	held('is not permitted to log in') if $major < 17;
	each_database(0, 'ALTER ROLE runs_%s LOGIN');
	all_work('... and work goes on when it may again');
	return;
}

my %no_owner = (stranger => '42501', creator => '42501');

# refused: to whom, with which error. may: who may. fails: ways to fail for those. alone: it works in no block. quiet: what fails or is undone
# is not noticed by the workers. before, after: around one that is done.
my @commands = (
	{
		command => 'ALTER DATABASE %s RENAME TO renamed_%s', limit => 2, refused => { %no_owner, member => '42501' }, may => [ 'owner', 'super' ],
		fails => [ $occupied, { name => 'fails since the name is taken', command => 'ALTER DATABASE %s RENAME TO postgres', error => '42P04' } ],
		after => sub {
			all_work('... and work goes on under the new name', 'renamed_%s');
			each_database(0, 'ALTER DATABASE renamed_%s RENAME TO %s');
			all_work('... and under the old one');
			all_are_new($_[0], '... by other workers');
		}
	},
	{
		command => 'ALTER DATABASE %s SET TABLESPACE elsewhere', limit => 10, refused => \%no_owner, may => [ 'owner', 'super' ], alone => 1,
		fails => [ $occupied, { name => 'fails', command => 'ALTER DATABASE %s SET TABLESPACE pg_global', error => '22023', user => 'super' } ],
		after => sub {
			all_work('... and work goes on');
			all_are_new($_[0], '... by other workers');
			each_database(0, 'ALTER DATABASE %s SET TABLESPACE pg_default');
			all_work('... and there, too');
		}
	},
	{
		command => 'ALTER DATABASE %s SET TABLESPACE forbidden', limit => 10, refused => { owner => '42501', member => '42501' }
	},
	(
		map {
			{
				command => "CREATE DATABASE copy_of_%s TEMPLATE %s$_", limit => 10, refused => { stranger => '42501', creator => '42501', member => '42501' },
				may => [ 'owner', 'super' ], alone => 1,
				fails => [ $occupied, { name => 'fails since the name is taken', command => "CREATE DATABASE bare TEMPLATE %s$_", error => '42P04' } ],
				after => sub {
					all_work('... and work goes on');
					all_are_new($_[0], '... by other workers');
					my @copies = map { "'copy_of_$_'" } @states;
					ok( $watch->becomes("SELECT count(*) = " . @states . " AND bool_and(backend_type = 'revenant supervisor') FROM pg_stat_activity
							WHERE datname IN (" . join(',', @copies) . ')'),
						'... and nothing but a supervisor is in the copy');
					each_database(0, 'DROP DATABASE copy_of_%s');
				}
			}
		} '', ' STRATEGY wal_log', ' STRATEGY file_copy'
	),
	{
		command => 'ALTER EXTENSION revenant SET SCHEMA public', limit => 2, inside => 1,
		refused => { %no_owner, owner => '0A000', super => '0A000' }
	},
	{
		command => "ALTER EXTENSION revenant UPDATE TO '$version'", limit => 2, inside => 1, refused => \%no_owner, may => [ 'owner', 'super' ],
		fails => [ { name => 'fails since there is no such version', command => "ALTER EXTENSION revenant UPDATE TO '0.0'", error => '22023' } ],
		after => sub { all_work('... and work goes on') }
	},
	{
		# who owns it, but is no superuser, may not
		command => "ALTER EXTENSION revenant UPDATE TO 'other'", limit => 2, inside => 1, refused => { %no_owner, owner => '42501' }, may => ['super'],
		fails => [ { name => 'fails since there is no such version', command => "ALTER EXTENSION revenant UPDATE TO '0.0'", error => '22023' } ],
		after => sub {
			all_work('... and work goes on');
			each_database(1, "ALTER EXTENSION revenant UPDATE TO '$version'");
			all_work('... and after one to the old version');
		}
	},
	{
		command => 'DROP EXTENSION revenant', limit => 2, inside => 1, refused => \%no_owner, may => [ 'owner', 'super' ],
		fails => [
			{
				name => 'fails since something depends on it', error => '2BP01', after => inside('DROP VIEW public.looks'),
				before => inside('CREATE VIEW public.looks AS SELECT name FROM revenant.tasks')
			}
		],
		after => \&extension_gone
	},
	{
		command => 'DROP EXTENSION revenant CASCADE', limit => 2, inside => 1, refused => \%no_owner, may => [ 'owner', 'super' ],
		before => inside('CREATE VIEW public.looks AS SELECT name FROM revenant.tasks'),
		after => \&extension_gone
	},
	{
		command => 'DROP OWNED BY owner CASCADE', limit => 2, inside => 1, refused => \%no_owner, may => [ 'owner', 'super' ],
		after => \&extension_gone
	},
	{
		command => "ALTER ROLE runs_%s SET work_mem = '5MB'", limit => 2, refused => { stranger => '42501', owner => '42501' }, may => [ 'creator', 'super' ], quiet => 1,
		fails => [ { name => 'fails', command => "ALTER ROLE runs_%s SET work_mem = 'much'", error => '22023' } ],
		after => sub { is_deeply(workers(), $_[0], '... and no worker has noticed') }
	},
	{
		command => 'ALTER ROLE runs_%s NOLOGIN', limit => 2, refused => { stranger => '42501', owner => '42501' }, may => [ 'creator', 'super' ], quiet => 1,
		after => \&locked_out
	},
	{
		command => 'ALTER ROLE runs_%s RENAME TO renamed_%s', limit => 2, refused => { stranger => '42501', owner => '42501' }, may => [ 'creator', 'super' ],
		quiet => 1, fails => [ { name => 'fails since the name is taken', command => 'ALTER ROLE runs_%s RENAME TO stranger', error => '42710' } ],
		after => sub {
			held('was renamed');
			each_database(0, 'ALTER ROLE renamed_%s RENAME TO runs_%s');
			all_work('... and work goes on when it has its name again');
		}
	},
	{
		command => 'DROP ROLE runs_%s', limit => 2, refused => { stranger => '42501', owner => '42501' }, may => [ 'creator', 'super' ], quiet => 1,
		fails => [
			{
				name => 'fails since it owns something', error => '2BP01', after => inside('DROP TABLE public.owned'),
				before => inside('CREATE TABLE public.owned (); ALTER TABLE public.owned OWNER TO runs_%s')
			}
		],
		after => sub {
			held('does not exist');
			make_roles();
			held('is not the role it was made for');
			each_database(1, 'SELECT revenant.drop_task(name) FROM revenant.tasks');
			make_tasks();
			all_work('... and work goes on with tasks of the new role');
		}
	},
	{
		command => 'DROP DATABASE %s', limit => 2, refused => \%no_owner, may => [ 'owner', 'super' ], alone => 1, fails => [ $occupied, $subscribed ],
		after => \&database_gone
	},
	{
		command => 'DROP DATABASE %s WITH (FORCE)', limit => 2, refused => \%no_owner, may => [ 'owner', 'super' ], alone => 1,
		fails => [
			{ name => 'fails since a superuser is connected', before => \&let_in, after => \&let_out, error => '42501', user => 'owner' },
			$subscribed
		],
		after => \&database_gone
	});

# --- before everything else: these checks see when nobody works, and when somebody is in the way

make_roles();
each_database(0, 'CREATE DATABASE %s TEMPLATE bare OWNER owner');
foreach my $state (@states)
{
	ok($watch->becomes('SELECT (' . seen($state) . ") = 'supervises'"), "$state: there is a supervisor");
	my $inside = Client->new($node, $state);
	is($inside->query('SELECT count(*) FROM revenant.tasks'), 0, '... of no tasks');
	leave($inside);
}
make_tasks();
all_work('all workers do what they should');
let_in();
my %session = each_does('super', 0, 'ALTER DATABASE %s RENAME TO renamed_%s');
is(join(' ', map { substr($_->{error}, 0, 5) } values %session), join(' ', ('55006') x @states), 'somebody who does not give way is in the way');
cmp_ok($_->{got} - $_->{sent}, '>', 2, '... for a while') foreach values %session;
leave(values %session);
let_out();
all_work('... and then work goes on');

try_all($_) foreach @commands;

# --- elsewhere than in a statement of its own

# A statement ends soon and well. Returns its session.
sub quick
{
	my ($database, $limit, @statements) = @_;
	my $session = Client->new($node, $database);
	my @wrong;

	foreach my $statement (@statements)
	{
		my $start = monotonic();
		$session->send($statement);
		answers($start + 12, $session);
		push @wrong, "$statement: " . ($session->{error} // 'no answer') if $session->{busy} || $session->{error};
		push @wrong, sprintf('%s: it took %.2f s', $statement, monotonic() - $start) if monotonic() - $start > $limit;
		last if $session->{busy};
	}
	is(join("\n", @wrong), '', $statements[-1]);
	return $session;
}

leave(quick('postgres', 2, 'DO $$ BEGIN ALTER DATABASE busy RENAME TO renamed; END $$'));
is(trouble('renamed', 'busy'), '', 'a database can be renamed in a function');
leave(quick('postgres', 2, 'BEGIN', 'ALTER DATABASE renamed RENAME TO busy', 'SAVEPOINT s', 'ALTER DATABASE idle RENAME TO other', 'RELEASE s',
	'SAVEPOINT t', 'ALTER DATABASE locking RENAME TO idle', 'ROLLBACK TO t', 'ALTER DATABASE claiming RENAME TO idle', 'ALTER DATABASE other RENAME TO claiming', 'COMMIT'));
is(trouble($_->[0], $_->[1]), '', "several in one transaction: $_->[1]") foreach [ 'busy', 'busy' ], [ 'claiming', 'idle' ], [ 'idle', 'claiming' ], [ 'locking', 'locking' ];
leave(quick('postgres', 2, 'BEGIN', 'ALTER DATABASE busy RENAME TO renamed', "PREPARE TRANSACTION 'renamed'"));
leave(quick('postgres', 2, "COMMIT PREPARED 'renamed'"));
is(trouble('renamed', 'busy'), '', 'in a prepared transaction');
leave(quick('postgres', 2, 'ALTER DATABASE renamed RENAME TO busy'));
is(trouble('busy', 'busy'), '', 'and back');

leave(quick('busy', 10, 'CREATE DATABASE copied TEMPLATE busy'));
is(trouble('busy', 'busy'), '', 'a session can copy its own database');
my $copy = Client->new($node, 'copied');
ok($copy->becomes("SELECT phase = 'held' AND reason LIKE '%adopt%' FROM revenant.tasks"), 'the tasks of a copy are held');
is($watch->query(seen('copied')), 'supervises', 'and do not run');
is($copy->query('SELECT revenant.adopt()'), '1', 'until they are adopted');
leave($copy);
is(trouble('copied', 'busy'), '', 'then they run');
leave(quick('postgres', 2, 'DROP DATABASE copied'));

my $inside = Client->new($node, 'busy');
$inside->query("SELECT revenant.create_task('copies', 'CREATE DATABASE copied TEMPLATE busy', run_as => 'owner', restart => 'temporary')");
ok($inside->becomes("SELECT phase = 'leading' OR phase = 'finished' FROM revenant.tasks WHERE name = 'copies'"), 'a task begins to copy its own database');
leave($inside);
ok($watch->becomes("SELECT EXISTS (SELECT FROM pg_database WHERE datname = 'copied')"), 'and does');
$inside = Client->new($node, 'busy');
ok($inside->becomes("SELECT phase = 'finished' AND last_exit = 0 FROM revenant.tasks WHERE name = 'copies'"), 'which is a success');
$inside->query("SELECT revenant.drop_task('copies')");
leave($inside);
is(trouble('busy', 'busy'), '', 'and others go on');
leave(quick('postgres', 2, 'DROP DATABASE copied'));
my $before = workers();
leave(quick('postgres', 10, 'CREATE DATABASE bystander'), quick('postgres', 2, 'DROP DATABASE bystander'));
is_deeply(workers(), $before, 'where another database comes and goes nobody notices');

# --- DROP EXTENSION that is more than that

my $marker = -s $node->logfile;
leave(quick('busy', 2, 'BEGIN', 'DROP EXTENSION revenant', 'CREATE EXTENSION revenant',
	"SELECT revenant.create_task('another', 'DO \$\$ BEGIN LOOP END LOOP; END \$\$', run_as => 'runs_busy', backoff_min => '10 ms')", 'COMMIT'));
is(trouble('busy', 'busy'), '', 'dropped and created in one transaction, the new task runs');
$inside = Client->new($node, 'busy');
ok($inside->becomes("SELECT string_agg(name, ',') = 'another' FROM revenant._task_status()"), 'and nothing is left of the old one');
$inside->query("SELECT revenant.create_task('drops', 'DROP EXTENSION revenant')");
leave($inside);
ok($watch->becomes('SELECT (' . seen('busy') . ") = 'nothing'"), 'a task can drop the extension, after which nothing of ours runs');
$log = substr(slurp_file($node->logfile), $marker);
cmp_ok(scalar(() = $log =~ /revenant supervisor could not|ERROR: /g), '<=', 1, 'the log has a line of it');

$node->stop('fast');
$log = slurp_file($node->logfile);
unlike($log, qr/cannot go from phase/, 'no transition was outside the table');
unlike($log, qr/PANIC|terminated by signal|server process .* was terminated/, 'nothing crashed');

done_testing();
