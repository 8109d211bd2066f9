# A client that speaks the protocol itself, so that a test has several statements under way at once and knows on its own
# monotonic clock when each was sent and when its answer came.

package Client;

use strict;
use warnings;

use Exporter 'import';
use IO::Handle;
use Socket;
use Time::HiRes qw(CLOCK_MONOTONIC clock_gettime);

our @EXPORT_OK = qw(answers monotonic);

# Seconds, on the clock that nobody sets.
sub monotonic { return clock_gettime(CLOCK_MONOTONIC) }

# Client->new($node, $database): a session of its own; `pid` is its process.
sub new
{
	my ($class, $node, $database) = @_;
	my $self = bless { buffer => '', busy => 1, rows => [] }, $class;

	socket($self->{socket}, AF_UNIX, SOCK_STREAM, 0) or die "socket: $!";
	connect($self->{socket}, pack_sockaddr_un($node->host . '/.s.PGSQL.' . $node->port)) or die "connect: $!";
	$self->{socket}->autoflush(1);
	my $startup = pack('N', 3 << 16) . join("\0", user => scalar getpwuid($<), database => $database // 'postgres', '', '');
	$self->_write(pack('N', 4 + length $startup) . $startup);
	answers(monotonic() + $PostgreSQL::Test::Utils::timeout_default, $self) or die 'no answer';
	die "cannot connect: $self->{error}" if $self->{error};
	return $self;
}

sub _write
{
	my ($self, $bytes) = @_;

	while (length $bytes)
	{
		my $n = syswrite($self->{socket}, $bytes) // die "write: $!";
		substr($bytes, 0, $n, '');
	}
	return;
}

# Sends a query, which may be several statements. `sent` is from just before it.
sub send
{
	my ($self, $query) = @_;

	die 'it has not answered yet' if $self->{busy};
	@$self{qw(busy rows error got)} = (1, [], undef, undef);
	$self->{sent} = monotonic();
	$self->_write('Q' . pack('N', 5 + length $query) . $query . "\0");
	return $self;
}

# Takes what has come; `got` is the time of the end of the answer.
sub _read
{
	my ($self) = @_;

	my $n = sysread($self->{socket}, $self->{buffer}, 65536, length $self->{buffer});
	my $now = monotonic();
	if (!$n)
	{
		@$self{qw(busy got error)} = (0, $now, $self->{error} // 'the connection is gone');
		return;
	}
	while (length $self->{buffer} >= 5)
	{
		my ($type, $length) = unpack('a N', $self->{buffer});
		last if length $self->{buffer} < 1 + $length;
		my $body = substr(substr($self->{buffer}, 0, 1 + $length, ''), 5);

		if ($type eq 'D')
		{
			my ($columns, $at, @values) = (unpack('n', $body), 2);
			foreach (1 .. $columns)
			{
				my $size = unpack('l>', substr($body, $at, 4));
				push @values, $size < 0 ? '' : substr($body, $at + 4, $size);
				$at += 4 + ($size < 0 ? 0 : $size);
			}
			push @{ $self->{rows} }, join('|', @values);
		}
		elsif ($type eq 'E')
		{
			my %fields = map { /^(.)(.*)$/s ? ($1, $2) : () } split /\0/, $body;
			$self->{error} = "$fields{C} $fields{M}";
		}
		elsif ($type eq 'K')
		{
			$self->{pid} = unpack('N', $body);
		}
		elsif ($type eq 'Z')
		{
			@$self{qw(busy got)} = (0, $now);
		}
	}
	return;
}

# The answer: rows as psql -A -t shows them.
sub answer
{
	my ($self) = @_;

	die "it has not answered yet" if $self->{busy};
	die $self->{error} if defined $self->{error};
	return join("\n", @{ $self->{rows} });
}

# A query and its answer.
sub query
{
	my ($self, $query) = @_;

	$self->send($query);
	answers(monotonic() + $PostgreSQL::Test::Utils::timeout_default, $self) or die "no answer to: $query";
	return $self->answer;
}

# Waits until a query is true; false when it was not in time.
sub becomes
{
	my ($self, $query) = @_;
	my $until = monotonic() + $PostgreSQL::Test::Utils::timeout_default;

	while ($self->query($query) ne 't')
	{
		return 0 if monotonic() > $until;
		select undef, undef, undef, 0.01;
	}
	return 1;
}

# answers($until, @clients): takes what comes until all of them have answered; false when they had not by that time.
sub answers
{
	my ($until, @clients) = @_;

	while (my @busy = grep { $_->{busy} } @clients)
	{
		my $left = $until - monotonic();
		my $mask = '';
		vec($mask, fileno $_->{socket}, 1) = 1 foreach @busy;
		my $ready = select(my $readable = $mask, undef, undef, $left > 0 ? $left : 0);
		foreach my $client ($ready > 0 ? @busy : ())
		{
			$client->_read if vec($readable, fileno $client->{socket}, 1);
		}
		return 0 if $left <= 0 && $ready <= 0;
	}
	return 1;
}

sub quit
{
	my ($self) = @_;

	eval { $self->_write('X' . pack('N', 4)) };
	close $self->{socket};
	return;
}

1;
