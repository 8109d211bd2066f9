#!/usr/bin/perl
#
# prove.pl SUMMARY JOBS FILE...: runs tests that print TAP, as prove does.
#
# A .pl file is run by perl, a .sql file by psql in a fresh database with pgtap and
# revenant in it (PGHOST and PGPORT lead to the server), anything else by itself.
# Writes "passed failed skipped" and then the names of the files that
# failed to SUMMARY. A file that stops early or promises other tests than it
# runs counts as a failure, a skipped test as none of the two.

use strict;
use warnings;
use File::Basename;
use TAP::Harness;

my ($summary, $jobs, @files) = @ARGV;
my ($passed, $failed, $skipped, @bad) = (0, 0, 0);

sub command
{
	my ($harness, $file) = @_;

	return [ $^X, $file ] if $file =~ /\.pl$/;
	return [$file] unless $file =~ /\.sql$/;

	my $database = 'pgtap_' . basename($file, '.sql');
	my @psql = qw(psql -X -q -A -t -v ON_ERROR_STOP=1);
	foreach my $step (
		[ 'postgres', qq(CREATE DATABASE "$database") ],
		[ $database, 'CREATE EXTENSION pgtap' ],
		[ $database, 'CREATE EXTENSION revenant' ])
	{
		my ($where, $what) = @$step;
		system(@psql, '-d', $where, '-c', $what) == 0
		  or return [ 'printf', "not ok 1 - $what\n1..1\n" ];
	}
	return [ @psql, '-d', $database, '-f', $file ];
}

my $harness = TAP::Harness->new(
	{
		exec => \&command,
		jobs => $jobs,
		failures => 1,
		# What pgtap has to say about a failure is a comment.
		comments => $files[0] =~ /\.sql$/ ? 1 : 0,
		timer => 1,
		color => 0,
	});

# The parsers know more than their aggregate: which files, and why.
$harness->callback(
	after_test => sub {
		my ($job, $parser) = @_;
		my $skips = scalar $parser->skipped;
		my $bad = scalar $parser->failed;

		$bad++ if $parser->has_problems && $bad == 0;
		$passed += scalar($parser->passed) - $skips;
		$failed += $bad;
		$skipped += $skips + (defined $parser->skip_all ? 1 : 0);
		push @bad, $job->[0] if $bad;
	});

# Also when a test bails out, which ends the harness, and when the time is over.
$SIG{TERM} = sub { exit 143 };

END
{
	if ($summary)
	{
		open my $out, '>', $summary or die "$summary: $!";
		print $out "$passed $failed $skipped\n", map { "$_\n" } @bad;
		close $out;
	}
}

my $all = $harness->runtests(map { [ $_, basename($_) ] } @files);
exit($all->all_passed && $failed == 0 ? 0 : 1);
