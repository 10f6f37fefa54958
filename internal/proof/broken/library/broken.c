/* Loaded before libc by a PostgreSQL of a harness (LD_PRELOAD): waits for
 * its disk and reads its clock as the harness orders. The orders are a file
 * that CHAOS_ORDERS names, three 64 bit numbers, mapped into each process. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct orders {
	volatile int64_t sync_us; /* every fsync takes so much longer */
	volatile int64_t failing; /* every fsync fails */
	volatile int64_t skew_s;  /* the wall clock is so far ahead */
};

static struct orders none;
static struct orders *orders = &none;

static int (*real_fsync)(int);
static int (*real_fdatasync)(int);

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("CHAOS_ORDERS");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;

	real_fsync = (int (*)(int)) dlsym(RTLD_NEXT, "fsync");
	real_fdatasync = (int (*)(int)) dlsym(RTLD_NEXT, "fdatasync");
	if (fd < 0)
		return;
	void *at = mmap(NULL, sizeof(struct orders), PROT_READ, MAP_SHARED, fd, 0);
	if (at != MAP_FAILED)
		orders = at;
	close(fd);
}

static int disturbed(void)
{
	int64_t us = orders->sync_us;
	struct timespec left = {us / 1000000, us % 1000000 * 1000};

	while (us > 0 && nanosleep(&left, &left) == -1 && errno == EINTR)
		;
	if (orders->failing) {
		errno = EIO;
		return -1;
	}
	return 0;
}

int fsync(int fd) { return disturbed() ? -1 : real_fsync(fd); }

int fdatasync(int fd) { return disturbed() ? -1 : real_fdatasync(fd); }

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	struct timespec ts;

	(void) zone;
	if (clock_gettime(CLOCK_REALTIME, &ts) != 0)
		return -1;
	now->tv_sec = ts.tv_sec + orders->skew_s;
	now->tv_usec = ts.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *at)
{
	struct timeval now;

	gettimeofday(&now, NULL);
	if (at)
		*at = now.tv_sec;
	return now.tv_sec;
}
