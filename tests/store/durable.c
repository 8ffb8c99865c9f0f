/* Keeps an image of what a power cut would leave of a store's files.
 *
 * Loaded before the C library (LD_PRELOAD), it copies data.mdb and segments to the directory
 * $DURABLE_IMAGE whenever such a file is synced, and repeats there what is written through a
 * descriptor that syncs by itself. All other writes reach the file only: after a kill the image
 * lacks them, as a disk would. What is removed stays in the image, as it may on a disk.
 *
 * With $DURABLE_KILL_AT the process is killed at that step, counted over the moments before and
 * after each write and each sync.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

/* The name of a file that belongs to a store, or nothing. */
static const char *name_of(int fd) {
    static __thread char path[4096];
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return NULL;
    path[length] = 0;
    const char *name = strrchr(path, '/');
    if (!name) return NULL;
    return !strcmp(name, "/data.mdb") || !strncmp(name, "/segment-", 9) ? name : NULL;
}

static int is_data(int fd) { return name_of(fd) != NULL; }

static int image(int fd) {
    char path[8192];
    snprintf(path, sizeof path, "%s%s", getenv("DURABLE_IMAGE"), name_of(fd));
    int opened = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (opened < 0) abort();
    return opened;
}

static void step(void) {
    static int steps;
    const char *kill_at = getenv("DURABLE_KILL_AT");
    if (kill_at && __sync_add_and_fetch(&steps, 1) == atoi(kill_at)) kill(getpid(), SIGKILL);
}

typedef ssize_t (*pwritev_type)(int, const struct iovec *, int, off_t);
typedef ssize_t (*pwrite_type)(int, const void *, size_t, off_t);
typedef int (*sync_type)(int);

static ssize_t real_pwrite(int fd, const void *bytes, size_t size, off_t at) {
    static pwrite_type real;
    if (!real) real = (pwrite_type)dlsym(RTLD_NEXT, "pwrite64");
    return real(fd, bytes, size, at);
}

static void copy(int fd) {
    /* Some are read past the cache, which asks for whole pages. */
    static __thread char bytes[1 << 16] __attribute__((aligned(4096)));
    off_t at = 0;
    ssize_t size;
    int to = image(fd);
    while ((size = pread(fd, bytes, sizeof bytes, at)) > 0) {
        if (real_pwrite(to, bytes, (size_t)size, at) != size) abort();
        at += size;
    }
    close(to);
}

ssize_t pwrite64(int fd, const void *bytes, size_t size, off_t at) {
    if (!is_data(fd)) return real_pwrite(fd, bytes, size, at);
    step();
    ssize_t written = real_pwrite(fd, bytes, size, at);
    if (written > 0 && (fcntl(fd, F_GETFL) & O_DSYNC)) {
        int to = image(fd);
        if (real_pwrite(to, bytes, (size_t)written, at) != written) abort();
        close(to);
    }
    step();
    return written;
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off_t at) {
    pwritev_type real = (pwritev_type)dlsym(RTLD_NEXT, "pwritev64");
    if (!is_data(fd)) return real(fd, parts, count, at);
    step();
    ssize_t written = real(fd, parts, count, at);
    step();
    return written;
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
    return pwritev64(fd, parts, count, at);
}

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t at) {
    return pwrite64(fd, bytes, size, at);
}

static int sync_with(const char *name, int fd) {
    sync_type real = (sync_type)dlsym(RTLD_NEXT, name);
    if (!is_data(fd)) return real(fd);
    step();
    int result = real(fd);
    if (result == 0) copy(fd);
    step();
    return result;
}

int fdatasync(int fd) { return sync_with("fdatasync", fd); }

int fsync(int fd) { return sync_with("fsync", fd); }
