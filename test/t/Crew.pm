# Workers that are processes of their own, with a session each: so that a test can kill one, or stop it and have it go on.

package Crew;

use strict;
use warnings;

use Client qw(monotonic);
use POSIX ();
use PostgreSQL::Test::Utils;

my $dir = PostgreSQL::Test::Utils::tempdir;
my $hired = 0;
my @all;

# Crew->hire($node, $work): a process that runs $work->($worker), where $worker->{client} is its session; it ends well if that returns.
sub hire
{
	my ($class, $node, $work) = @_;
	my $self = bless { file => "$dir/worker" . ++$hired, boss => $$ }, $class;

	append_to_file($self->{file}, '');
	$self->{pid} = fork() // die "fork: $!";
	if ($self->{pid} == 0)
	{
		# nothing of the test's is this process's to clean up
		@all = ();
		my $ok = eval {
			$self->{client} = Client->new($node);
			$self->say('session ' . $self->{client}{pid});
			$work->($self);
			1;
		};
		$self->say('died: ' . ($@ =~ s/\s+/ /gr)) unless $ok;
		POSIX::_exit($ok ? 0 : 1);
	}
	push @all, $self;
	return $self;
}

# In the worker: tells the test something, in one line.
sub say
{
	my ($self, $line) = @_;

	open my $out, '>>', $self->{file} or POSIX::_exit(2);
	syswrite $out, "$line\n";
	close $out;
	return;
}

# In the worker: a query and its answer; undef if it failed, then {failure} has its SQLSTATE and message.
sub try
{
	my ($self, $query) = @_;
	my $answer = eval { $self->{client}->query($query) };

	$self->{failure} = defined $answer ? undef : $@;
	return $answer;
}

# In the worker: waits until the test says `go`.
sub pause
{
	my ($self) = @_;

	$self->say('pausing');
	select undef, undef, undef, 0.01 until -e "$self->{file}.go";
	unlink "$self->{file}.go";
	return;
}

# In the worker: what the test has told it last.
sub order { return -e "$_[0]{file}.order" ? slurp_file("$_[0]{file}.order") : '' }

# In the test: has it go on after a pause.
sub go { append_to_file("$_[0]{file}.go", ''); return }

# In the test: tells it something, which it sees at once as a whole.
sub tell
{
	my ($self, $order) = @_;

	append_to_file("$self->{file}.new", $order);
	rename "$self->{file}.new", "$self->{file}.order" or die "rename: $!";
	return;
}

# In the test: all that it said, line by line.
sub lines { return split /\n/, slurp_file($_[0]{file}) }

# In the test: waits until it has said something (so often); false when it had not in time.
sub says
{
	my ($self, $what, $times) = @_;
	my $until = monotonic() + $PostgreSQL::Test::Utils::timeout_default;

	while ((grep { /$what/ } $self->lines) < ($times // 1))
	{
		return 0 if monotonic() > $until || grep { /^died/ } $self->lines;
		select undef, undef, undef, 0.01;
	}
	return 1;
}

# In the test: sends a signal.
sub signal { return CORE::kill $_[1], $_[0]{pid} }

# In the test: kills it.
sub kill
{
	my ($self) = @_;

	$self->signal('KILL');
	return $self->finish;
}

# In the test: waits until it has ended; true if it ended well.
sub finish
{
	my ($self) = @_;
	my $until = monotonic() + $PostgreSQL::Test::Utils::timeout_default;
	my $ended;

	return $self->{well} if defined $self->{well};
	select undef, undef, undef, 0.01 while ($ended = waitpid($self->{pid}, POSIX::WNOHANG())) == 0 && monotonic() < $until;
	if ($ended == 0)
	{
		$self->say('died: it had not ended in time');
		$self->signal('KILL');
		waitpid $self->{pid}, 0;
	}
	return $self->{well} = $? == 0;
}

END
{
	my $status = $?;

	foreach my $self (grep { !defined $_->{well} && $_->{boss} == $$ } @all)
	{
		$self->signal('KILL');
		waitpid $self->{pid}, 0;
	}
	$? = $status;
}

1;
