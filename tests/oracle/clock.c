/* Preloaded into the redis-server under test: its wall clock is a number that the test writes.
 *
 * ORACLE_CLOCK names a file of 8 bytes, unix microseconds, native order. It is mapped, so moving the
 * clock costs the test one store. The monotonic clock is left alone: the event loop lives on it.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *clock_us;

__attribute__((constructor)) static void map_clock(void) {
    const char *path = getenv("ORACLE_CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) _exit(97); /* never run on the real clock by accident */
    void *map = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (map == MAP_FAILED) _exit(97);
    clock_us = map;
}

int gettimeofday(struct timeval *tv, void *tz) {
    (void)tz;
    int64_t now = *clock_us;
    tv->tv_sec = now / 1000000;
    tv->tv_usec = now % 1000000;
    return 0;
}

time_t time(time_t *out) {
    time_t now = *clock_us / 1000000;
    if (out) *out = now;
    return now;
}

int clock_gettime(clockid_t id, struct timespec *ts) {
    if (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE) return syscall(SYS_clock_gettime, id, ts);
    int64_t now = *clock_us;
    ts->tv_sec = now / 1000000;
    ts->tv_nsec = now % 1000000 * 1000;
    return 0;
}
