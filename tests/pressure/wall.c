/* Lets a test set the clock on the wall of one process.
 *
 * Loaded before the C library (LD_PRELOAD), it adds to the time of day what $WALL_OFFSET says: a
 * file of eight bytes, nanoseconds, which the test writes as often as it likes. The clocks that
 * nobody can set stay as they are.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

typedef int (*gettime_type)(clockid_t, struct timespec *);

static volatile int64_t *offset;
static gettime_type real;

__attribute__((constructor)) static void start(void) {
    real = (gettime_type)dlsym(RTLD_NEXT, "clock_gettime");
    int fd = open(getenv("WALL_OFFSET"), O_RDONLY | O_CLOEXEC);
    if (!real || fd < 0) abort();
    offset = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, fd, 0);
    if (offset == MAP_FAILED) abort();
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    int failed = real ? real(clock, at) : -1;
    if (failed || !offset || clock != CLOCK_REALTIME) return failed;
    int64_t ns = at->tv_sec * INT64_C(1000000000) + at->tv_nsec + *offset;
    at->tv_sec = ns / 1000000000;
    at->tv_nsec = ns % 1000000000;
    return 0;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
