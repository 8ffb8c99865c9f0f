/* Lets a test make the disk under some files of one process hang.
 *
 * Loaded before the C library (LD_PRELOAD), it holds up every sync of a file whose path contains the
 * text that lies in $HANG, for as long as it lies there, and half a minute at most.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int (*sync_type)(int);

static int hangs(int fd) {
    char link[64], path[4096], text[256];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    int file = open(getenv("HANG"), O_RDONLY | O_CLOEXEC);
    if (length < 0 || file < 0) return 0;
    ssize_t size = read(file, text, sizeof text - 1);
    close(file);
    if (size <= 0) return 0;
    path[length] = text[size] = 0;
    return strstr(path, text) != NULL;
}

static int held_up(const char *name, int fd) {
    for (int turns = 0; turns < 3000 && hangs(fd); turns++) usleep(10000);
    return ((sync_type)dlsym(RTLD_NEXT, name))(fd);
}

int fdatasync(int fd) { return held_up("fdatasync", fd); }
int fsync(int fd) { return held_up("fsync", fd); }
