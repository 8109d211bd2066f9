/*
 * shim.c: a wall clock that can be stepped and a disk that can be slow, for whatever runs with LD_PRELOAD=shim.so.
 *
 * CHAOS_SHIM names a file of two int64 in the machine's order, which may be written at any time: how many microseconds the wall clock is
 * ahead of the true one, and how many each fsync takes longer. The monotonic clock is left alone.
 *
 * The file is mapped and read without a lock: a server asks for the time in signal handlers, too, which may interrupt whoever just does so.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define US_PER_S 1000000

struct settings
{
	int64_t		ahead_us;
	int64_t		fsync_us;
};

static const struct settings true_world;
static volatile const struct settings *settings = &true_world;
static int	(*true_clock) (clockid_t, struct timespec *);
static int	(*true_fsync) (int);
static int	(*true_fdatasync) (int);

__attribute__((constructor)) static void
begin(void)
{
	const char *name = getenv("CHAOS_SHIM");
	int			file = name == NULL ? -1 : open(name, O_RDONLY | O_CLOEXEC);
	void	   *place;

	true_clock = dlsym(RTLD_NEXT, "clock_gettime");
	true_fsync = dlsym(RTLD_NEXT, "fsync");
	true_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
	if (file < 0)
		return;
	place = mmap(NULL, sizeof(struct settings), PROT_READ, MAP_SHARED, file, 0);
	if (place != MAP_FAILED)
		settings = place;
	close(file);
}

int
clock_gettime(clockid_t clock, struct timespec *now)
{
	int			result;
	int64_t		us;

	/* somebody's constructor may come before ours */
	if (true_clock == NULL)
		true_clock = dlsym(RTLD_NEXT, "clock_gettime");
	result = true_clock(clock, now);
	if (result != 0 || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
		return result;
	us = settings->ahead_us;
	now->tv_sec += us / US_PER_S;
	now->tv_nsec += us % US_PER_S * 1000;
	if (now->tv_nsec >= 1000000000)
	{
		now->tv_sec++;
		now->tv_nsec -= 1000000000;
	}
	else if (now->tv_nsec < 0)
	{
		now->tv_sec--;
		now->tv_nsec += 1000000000;
	}
	return 0;
}

int
gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	struct timespec at;

	(void) zone;
	if (clock_gettime(CLOCK_REALTIME, &at) != 0)
		return -1;
	now->tv_sec = at.tv_sec;
	now->tv_usec = at.tv_nsec / 1000;
	return 0;
}

time_t
time(time_t *where)
{
	struct timespec at;

	clock_gettime(CLOCK_REALTIME, &at);
	if (where != NULL)
		*where = at.tv_sec;
	return at.tv_sec;
}

static void
be_slow(void)
{
	int64_t		us = settings->fsync_us;
	struct timespec left = {us / US_PER_S, us % US_PER_S * 1000};

	while (us > 0 && nanosleep(&left, &left) != 0)
		;
}

int
fsync(int file)
{
	be_slow();
	return true_fsync(file);
}

int
fdatasync(int file)
{
	be_slow();
	return true_fdatasync(file);
}
