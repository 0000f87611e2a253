/*
 * A wall clock that a test can set: that of the machine plus an offset, or one
 * that stands still. Two numbers of nanoseconds, which all processes of a server
 * map from one file: the offset, and if it is not 0 the instant at which the clock
 * stands, whatever the offset. Preloaded into servers under test. A third number that
 * is not 0 stops the disk: fdatasync() returns when it is 0 again.
 *
 * libfaketime opens and reads a file at each look at the clock, with malloc(). A
 * server looks at its clock in the handler of its timeouts too, and one signal in
 * many thousands arrives inside malloc(): its heap is then destroyed. What is here
 * is safe in a signal handler, and as fast as the clock itself. The other clocks
 * of the machine are left alone.
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

#define NANOS_PER_SEC 1000000000

/*
 * A process may lose its core between its look at the clock and its look at the
 * offset. If the offset is set meanwhile, the sum is a time that no clock has
 * shown. So the clock is read on both sides of the offset, until both readings lie
 * as close together as this: half of what the torture test allows for rounding.
 */
#define READINGS_APART 10000000
#define READING_ATTEMPTS 100

static int (*real_clock_gettime) (clockid_t, struct timespec *);
static int (*real_fdatasync) (int);
static const volatile int64_t *offset;
static const volatile int64_t *stands_at;
static const volatile int64_t *disk_stands;

__attribute__((constructor)) static void
map_offset(void)
{
	const char *name = getenv("TORTURE_CLOCK");
	int			file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
	void	   *map;

	*(void **) &real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
	*(void **) &real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
	if (file < 0)
		return;
	/* Behind the end of a shorter file, its last page reads as 0. */
	map = mmap(NULL, 3 * sizeof(*offset), PROT_READ, MAP_SHARED, file, 0);
	close(file);
	if (map != MAP_FAILED)
	{
		offset = map;
		stands_at = offset + 1;
		disk_stands = offset + 2;
	}
}

int
clock_gettime(clockid_t clock, struct timespec *at)
{
	struct timespec before;
	int			result,
				attempt;
	int64_t		ahead,
				nanos,
				instant;

	/* Other libraries may look at the clock while they are loaded. */
	if (real_clock_gettime == NULL)
		map_offset();
	result = real_clock_gettime(clock, at);
	if (result != 0 || offset == NULL ||
		(clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
		return result;
	/* Each once: they may change meanwhile. */
	instant = *stands_at;
	if (instant != 0)
	{
		at->tv_sec = instant / NANOS_PER_SEC;
		at->tv_nsec = instant % NANOS_PER_SEC;
		return 0;
	}
	for (attempt = 0; attempt < READING_ATTEMPTS; attempt++)
	{
		before = *at;
		ahead = *offset;
		real_clock_gettime(clock, at);
		if ((at->tv_sec - before.tv_sec) * NANOS_PER_SEC + at->tv_nsec - before.tv_nsec <= READINGS_APART)
			break;
	}
	nanos = at->tv_nsec + ahead % NANOS_PER_SEC;
	at->tv_sec += ahead / NANOS_PER_SEC;
	if (nanos < 0)
	{
		nanos += NANOS_PER_SEC;
		at->tv_sec--;
	}
	else if (nanos >= NANOS_PER_SEC)
	{
		nanos -= NANOS_PER_SEC;
		at->tv_sec++;
	}
	at->tv_nsec = nanos;
	return 0;
}

int
gettimeofday(struct timeval *restrict at, void *restrict zone)
{
	struct timespec now;

	(void) zone;
	clock_gettime(CLOCK_REALTIME, &now);
	at->tv_sec = now.tv_sec;
	at->tv_usec = now.tv_nsec / 1000;
	return 0;
}

int
fdatasync(int file)
{
	while (disk_stands != NULL && *disk_stands != 0)
		usleep(10000);
	return real_fdatasync(file);
}

time_t
time(time_t *at)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	if (at != NULL)
		*at = now.tv_sec;
	return now.tv_sec;
}
