/* Preloaded into a process under test: a fault at the n-th call with which it touches one of its files.
 *
 * Watched are the files of FAULT_PATHS (with ':' between them; data.mdb if not set): a part that ends in '/' is all
 * below that directory, another one is the end of a path. Counted are the calls that FAULT_CALLS names, in the same way;
 * without it all that write or sync:
 *
 *     pwrite pwritev write writev ftruncate fallocate fdatasync fsync msync
 *     open create pread mmap rename unlink mkdir rmdir            only if they are named; `create` opens a new file
 *
 * Each of them is one line of FAULT_REPORT:
 *
 *     operation offset length path
 *
 * At call number FAULT_NTH (from 1; 0 = never) happens what FAULT_MODE says:
 *
 *     before   the process is killed, the call is not made        after   it is made, then the process is killed
 *     torn     of a write only the first pages are made, about    error   it fails with errno FAULT_ERRNO; life goes on
 *              half, as where the kernel meets the signal; then as `before`
 *     onwards  as `error`, and so does each one that follows      short   a write makes the first half, and says so
 *     lies     as `error`; if it is a sync, the kernel gives up what the file had not on the disk, and later syncs succeed
 *     power    the process is killed, and every file becomes what a loss of power might leave: as at its last sync,
 *              plus some of the writes since then, this one included; FAULT_SEED says which
 *
 * A write through a descriptor with O_DSYNC is on the disk when it returns, alone. What a file held when it was first
 * seen counts as synced. Names (create, rename, unlink) are not undone. Writes through a mapping are not counted, and
 * nothing of them is kept before a sync.
 *
 * A process may set these variables anew and call tidelog_faults(), which begins to count again, and
 * tidelog_faults_power(), by which its files lose their power while it lives on.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { FILES_MAX = 256, SECTOR = 512, PAGE = 4096 };
enum mode { BEFORE, AFTER, TORN, POWER, ERROR, ONWARDS, SHORT, LIES };

struct change { /* since the last sync: a write, or a new size (data is NULL) */
    off_t at;
    size_t length;
    char *data;
    int durable;
    struct change *next;
};

struct file {
    dev_t device;
    ino_t inode;
    int fd; /* our own, without O_APPEND and O_DSYNC; it also keeps the inode from being used again */
    char *synced;
    size_t size;
    struct change *first, **end;
    int mapped;  /* it may be written through a mapping */
    char *given; /* what it held at a failed sync that lied, of a mapped file */
    size_t given_size;
};

static struct file files[FILES_MAX];
static int file_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long nth, calls;
static enum mode mode;
static int fault_errno, report = -1;
static uint64_t seed;
static char paths[PATH_MAX], operations[PATH_MAX];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static const char *const WRITING = "pwrite:pwritev:write:writev:ftruncate:fallocate:fdatasync:fsync:msync";

static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_writev)(int, const struct iovec *, int);
static ssize_t (*real_pwritev)(int, const struct iovec *, int, off_t);
static ssize_t (*real_pwritev2)(int, const struct iovec *, int, off_t, int);
static int (*real_ftruncate)(int, off_t);
static int (*real_fallocate)(int, int, off_t, off_t);
static int (*real_posix_fallocate)(int, off_t, off_t);
static int (*real_fdatasync)(int);
static int (*real_fsync)(int);
static int (*real_msync)(void *, size_t, int);
static int (*real_openat)(int, const char *, int, ...);
static ssize_t (*real_pread)(int, void *, size_t, off_t);
static void *(*real_mmap)(void *, size_t, int, int, int, off_t);
static int (*real_renameat2)(int, const char *, int, const char *, unsigned);
static int (*real_unlinkat)(int, const char *, int);
static int (*real_mkdirat)(int, const char *, mode_t);

static void die(const char *why) {
    fprintf(stderr, "tidelog faults.c: %s: %s\n", why, strerror(errno));
    _exit(96);
}

static const char *setting(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value ? value : otherwise;
}

static void forget(void);

/* Read the settings, and begin to count. */
void tidelog_faults(void) {
    pthread_mutex_lock(&lock);
    forget();
    calls = 0;
    nth = atol(setting("FAULT_NTH", "0"));
    fault_errno = atoi(setting("FAULT_ERRNO", "5"));
    seed = strtoull(setting("FAULT_SEED", "0"), NULL, 10) * 2 + 1;
    snprintf(paths, sizeof paths, "%s", setting("FAULT_PATHS", "data.mdb"));
    snprintf(operations, sizeof operations, "%s", setting("FAULT_CALLS", WRITING));
    const char *names[] = {"before", "after", "torn", "power", "error", "onwards", "short", "lies"};
    const char *wanted = setting("FAULT_MODE", "before");
    int found = -1;
    for (int i = 0; i < 8; i++)
        if (!strcmp(wanted, names[i])) found = i;
    if (found < 0) errno = EINVAL, die("FAULT_MODE");
    mode = (enum mode)found;
    const char *path = setting("FAULT_REPORT", NULL);
    if (report >= 0) close(report);
    report = -1;
    if (path && *path) {
        report = real_openat(AT_FDCWD, path, O_WRONLY | O_APPEND | O_CLOEXEC);
        if (report < 0) die("FAULT_REPORT");
    }
    pthread_mutex_unlock(&lock);
}

static void begin(void) {
#define FIND(name) if (!(real_##name = dlsym(RTLD_NEXT, #name))) errno = ENOSYS, die(#name)
    FIND(pwrite); FIND(write); FIND(writev); FIND(pwritev); FIND(pwritev2); FIND(ftruncate); FIND(fallocate);
    FIND(posix_fallocate); FIND(fdatasync); FIND(fsync); FIND(msync); FIND(openat); FIND(pread); FIND(mmap);
    FIND(renameat2); FIND(unlinkat); FIND(mkdirat);
    tidelog_faults();
    unsetenv("LD_PRELOAD"); /* the fault is this process's, not its children's */
}

/* Other libraries may begin first, and make calls. */
__attribute__((constructor)) static void ready(void) { pthread_once(&once, begin); }

/* Whether a name is one of a list with ':' between them. */
static int listed(const char *list, const char *name) {
    size_t length = strlen(name);
    for (const char *at = list; *at;) {
        size_t part = strcspn(at, ":");
        if (part == length && !memcmp(name, at, part)) return 1;
        at += part + (at[part] == ':');
    }
    return 0;
}

static int wanted_path(const char *path) {
    size_t length = strlen(path);
    for (const char *at = paths; *at;) {
        size_t part = strcspn(at, ":");
        int directory = part && at[part - 1] == '/';
        if (part && part <= length && !memcmp(directory ? path : path + length - part, at, part)) return 1;
        at += part + (at[part] == ':');
    }
    return 0;
}

static int path_of(int fd, char *path) {
    char link[32];
    int error = errno;
    ready();
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    errno = error;
    if (length < 0) return 0;
    path[length] = 0;
    return wanted_path(path);
}

/* The path of a name, not resolved, if it is one of ours. */
static int path_at(int at, const char *name, char *path) {
    ready();
    if (*name == '/' || at == AT_FDCWD) {
        snprintf(path, PATH_MAX, "%s", name);
    } else {
        char link[32], directory[PATH_MAX];
        int error = errno;
        snprintf(link, sizeof link, "/proc/self/fd/%d", at);
        ssize_t length = readlink(link, directory, PATH_MAX - 1);
        errno = error;
        if (length < 0) return 0;
        directory[length] = 0;
        if (snprintf(path, PATH_MAX, "%s/%s", directory, name) >= PATH_MAX) return 0;
    }
    return wanted_path(path);
}

static struct file *file_of(int fd) {
    struct stat now;
    if (fstat(fd, &now)) die("fstat");
    for (int i = 0; i < file_count; i++)
        if (files[i].device == now.st_dev && files[i].inode == now.st_ino) return &files[i];
    if (file_count == FILES_MAX) errno = EMFILE, die("too many files");
    struct file *file = &files[file_count++];
    char link[32];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    file->fd = real_openat(AT_FDCWD, link, O_RDWR | O_CLOEXEC);
    if (file->fd < 0) die(link);
    file->device = now.st_dev;
    file->inode = now.st_ino;
    file->end = &file->first;
    file->synced = file->given = NULL;
    file->size = file->given_size = 0;
    file->mapped = 0;
    return file;
}

static char *contents(struct file *file, size_t *size) {
    struct stat now;
    if (fstat(file->fd, &now)) die("fstat");
    *size = (size_t)now.st_size;
    char *data = malloc(*size + 1);
    if (!data) die("malloc");
    for (size_t at = 0; at < *size;) {
        ssize_t got = real_pread(file->fd, data + at, *size - at, (off_t)at);
        if (got <= 0) die("pread");
        at += (size_t)got;
    }
    return data;
}

/* What is in the file now is what is on the disk. */
static void remember_all(struct file *file) {
    free(file->synced);
    file->synced = contents(file, &file->size);
}

/* What is in a mapped file now is on the disk, except for the pages that a failed sync gave up and that did not change
 * since then. */
static void remember_changed(struct file *file) {
    size_t size;
    char *data = contents(file, &size);
    for (size_t at = 0; at < size; at += PAGE) {
        size_t length = size - at < PAGE ? size - at : PAGE;
        if (at + length > file->given_size || memcmp(data + at, file->given + at, length)) continue;
        size_t old = at < file->size ? file->size - at : 0;
        if (old > length) old = length;
        if (old) memcpy(data + at, file->synced + at, old);
        memset(data + at + old, 0, length - old);
    }
    free(file->synced);
    file->synced = data;
    file->size = size;
}

static void forget_changes(struct file *file) {
    while (file->first) {
        struct change *gone = file->first;
        file->first = gone->next;
        free(gone->data);
        free(gone);
    }
    file->end = &file->first;
}

/* Forget all files. [locked] */
static void forget(void) {
    while (file_count) {
        struct file *file = &files[--file_count];
        forget_changes(file);
        free(file->synced);
        free(file->given);
        close(file->fd);
    }
}

static void resize(struct file *file, size_t size) {
    file->synced = realloc(file->synced, size + 1);
    if (!file->synced) die("realloc");
    if (size > file->size) memset(file->synced + file->size, 0, size - file->size);
    file->size = size;
}

/* A change is on the disk. */
static void keep(struct file *file, const struct change *change) {
    if (!change->data) {
        resize(file, change->length);
        return;
    }
    size_t stop = (size_t)change->at + change->length;
    if (stop > file->size) resize(file, stop);
    memcpy(file->synced + change->at, change->data, change->length);
}

/* A sync of the file has succeeded. */
static void settle(struct file *file) {
    if (file->mapped)
        remember_changed(file);
    else
        for (struct change *c = file->first; c; c = c->next) keep(file, c);
    forget_changes(file);
}

/* A sync of the file has failed, and the next one will say that all is well. */
static void give_up(struct file *file) {
    for (struct change *c = file->first; c; c = c->next)
        if (c->durable) keep(file, c);
    forget_changes(file);
    if (!file->mapped) return;
    free(file->given);
    file->given = contents(file, &file->given_size);
}

static void add_change(struct file *file, off_t at, const void *data, size_t length, int durable) {
    struct change *c = calloc(1, sizeof *c);
    if (!c) die("calloc");
    c->at = at;
    c->length = length;
    c->durable = durable;
    if (data) {
        c->data = malloc(length + 1);
        if (!c->data) die("malloc");
        memcpy(c->data, data, length);
    }
    *file->end = c;
    file->end = &c->next;
}

static uint64_t draw(void) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed * 0x2545F4914F6CDD1DULL >> 33;
}

static void put(int fd, const char *data, size_t length, off_t at) {
    while (length) {
        ssize_t done = real_pwrite(fd, data, length, at);
        if (done <= 0) die("pwrite");
        data += done, at += done, length -= (size_t)done;
    }
}

/* What the loss of power leaves: the synced bytes, then by chance nothing, everything, whole writes or sectors. */
static void lose_power(struct file *file, int style) {
    if (real_ftruncate(file->fd, (off_t)file->size)) die("ftruncate");
    put(file->fd, file->synced, file->size, 0);
    for (struct change *c = file->first; c; c = c->next) {
        int kept = c->durable || style == 1 || (style >= 2 && draw() & 1);
        if (!c->data) {
            if (kept && real_ftruncate(file->fd, (off_t)c->length)) die("ftruncate");
        } else if (style != 3 || c->durable) {
            if (kept) put(file->fd, c->data, c->length, c->at);
        } else {
            for (size_t done = 0; done < c->length;) {
                size_t part = SECTOR - (size_t)(c->at + (off_t)done) % SECTOR;
                if (part > c->length - done) part = c->length - done;
                if (draw() & 1) put(file->fd, c->data + done, part, c->at + (off_t)done);
                done += part;
            }
        }
    }
}

static void end_process(void) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

/* The process ends first and the files change afterwards, in a child: no other thread writes on meanwhile. */
static void cut_power(void) {
    pid_t self = getpid();
    for (int i = 0; i < 8; i++) draw();
    int style = (int)(draw() % 4);
    long child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child < 0) die("clone");
    if (child) end_process();
    kill(self, SIGKILL);
    while (getppid() == self) usleep(200); /* it changes when the last thread is gone */
    for (int i = 0; i < file_count; i++) lose_power(&files[i], style);
    _exit(0);
}

/* The same for all files of a process that lives on and does not use them any more. */
void tidelog_faults_power(void) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < 8; i++) draw();
    int style = (int)(draw() % 4);
    for (int i = 0; i < file_count; i++) lose_power(&files[i], style);
    forget();
    pthread_mutex_unlock(&lock);
}

/* Whether the call at which the fault is fails, and the process lives on. */
static int fails(void) { return mode == ERROR || mode == ONWARDS || mode == LIES; }

/* Counts a call; true if it is the one. The lock is held. */
static int counted(const char *operation, off_t at, size_t length, const char *path) {
    if (!listed(operations, operation)) return 0;
    char line[PATH_MAX + 80];
    int size = snprintf(line, sizeof line, "%s %lld %zu %s\n", operation, (long long)at, length, path);
    if (report >= 0 && real_write(report, line, (size_t)size) != size) die("report");
    calls++;
    return mode == ONWARDS ? nth && calls >= nth : calls == nth;
}

static struct file *tracked(int fd) {
    int before = file_count;
    struct file *file = file_of(fd);
    if (file_count != before) remember_all(file);
    return file;
}

/* A write to one of our files, its pieces put together. `at` is -1 for one at the file's position. */
static ssize_t write_ours(const char *operation, int fd, const struct iovec *pieces, int count, off_t at,
                          const char *path) {
    size_t length = 0;
    for (int i = 0; i < count; i++) length += pieces[i].iov_len;
    char *data = malloc(length + 1), *to = data;
    if (!data) die("malloc");
    for (int i = 0; i < count; i++) to = mempcpy(to, pieces[i].iov_base, pieces[i].iov_len);
    pthread_mutex_lock(&lock);
    int flags = fcntl(fd, F_GETFL);
    struct file *file = tracked(fd);
    off_t place = at;
    if (flags & O_APPEND) {
        struct stat now;
        if (fstat(fd, &now)) die("fstat");
        place = now.st_size;
    } else if (at < 0) {
        place = lseek(fd, 0, SEEK_CUR);
    }
    ssize_t done = -1;
    int error = 0, hit = counted(operation, place, length, path);
    if (hit && fails()) {
        error = fault_errno;
    } else {
        if (hit && mode == POWER) {
            add_change(file, place, data, length, 0);
            cut_power();
        }
        if (hit && mode == TORN) {
            off_t cut = (place + (off_t)(length / 2)) / PAGE * PAGE; /* inside of a page it is not cut */
            if (cut > place) put(file->fd, data, (size_t)(cut - place), place);
        }
        if (hit && mode != AFTER && mode != SHORT) end_process();
        if (hit && mode == SHORT && length > 1) length /= 2;
        done = at < 0 ? real_write(fd, data, length) : real_pwrite(fd, data, length, at);
        error = errno;
        if (hit && mode != SHORT) end_process();
        if (done > 0) add_change(file, place, data, (size_t)done, (flags & O_DSYNC) != 0);
    }
    pthread_mutex_unlock(&lock);
    free(data);
    errno = error;
    return done;
}

ssize_t pwrite(int fd, const void *data, size_t length, off_t at) {
    char path[PATH_MAX];
    if (!path_of(fd, path)) return real_pwrite(fd, data, length, at);
    struct iovec piece = {(void *)data, length};
    return write_ours("pwrite", fd, &piece, 1, at, path);
}

ssize_t write(int fd, const void *data, size_t length) {
    char path[PATH_MAX];
    if (!path_of(fd, path)) return real_write(fd, data, length);
    struct iovec piece = {(void *)data, length};
    return write_ours("write", fd, &piece, 1, -1, path);
}

ssize_t writev(int fd, const struct iovec *pieces, int count) {
    char path[PATH_MAX];
    if (!path_of(fd, path)) return real_writev(fd, pieces, count);
    return write_ours("writev", fd, pieces, count, -1, path);
}

ssize_t pwritev(int fd, const struct iovec *pieces, int count, off_t at) {
    char path[PATH_MAX];
    if (!path_of(fd, path)) return real_pwritev(fd, pieces, count, at);
    return write_ours("pwritev", fd, pieces, count, at, path);
}

ssize_t pwritev2(int fd, const struct iovec *pieces, int count, off_t at, int flags) {
    char path[PATH_MAX];
    if (!path_of(fd, path)) return real_pwritev2(fd, pieces, count, at, flags);
    return write_ours("pwritev", fd, pieces, count, at, path);
}

/* A change of a file's size: `call` makes it. An error is returned as errno has it, as by posix_fallocate. */
enum size_call { FTRUNCATE, FALLOCATE, POSIX_FALLOCATE };

static int size_ours(enum size_call call, int fd, int how, off_t at, off_t length, const char *path) {
    pthread_mutex_lock(&lock);
    struct file *file = tracked(fd);
    struct stat now;
    if (fstat(fd, &now)) die("fstat");
    off_t size = call == FTRUNCATE ? length : at + length > now.st_size ? at + length : now.st_size;
    if (how) size = now.st_size; /* holes and the like: the size stays */
    int error = 0, hit = counted(call == FTRUNCATE ? "ftruncate" : "fallocate", at, (size_t)length, path);
    if (hit && fails()) {
        error = fault_errno;
    } else {
        if (hit && mode == POWER) {
            add_change(file, 0, NULL, (size_t)size, 0);
            cut_power();
        }
        if (hit && mode != AFTER && mode != SHORT) end_process();
        if (call == FTRUNCATE)
            error = real_ftruncate(fd, length) ? errno : 0;
        else if (call == FALLOCATE)
            error = real_fallocate(fd, how, at, length) ? errno : 0;
        else
            error = real_posix_fallocate(fd, at, length);
        if (hit && mode != SHORT) end_process();
        if (!error) add_change(file, 0, NULL, (size_t)size, 0);
    }
    pthread_mutex_unlock(&lock);
    return error;
}

static int answer(int error) {
    errno = error;
    return error ? -1 : 0;
}

int ftruncate(int fd, off_t length) {
    char path[PATH_MAX];
    if (!path_of(fd, path)) return real_ftruncate(fd, length);
    return answer(size_ours(FTRUNCATE, fd, 0, 0, length, path));
}

int fallocate(int fd, int how, off_t at, off_t length) {
    char path[PATH_MAX];
    if (!path_of(fd, path)) return real_fallocate(fd, how, at, length);
    return answer(size_ours(FALLOCATE, fd, how, at, length, path));
}

int posix_fallocate(int fd, off_t at, off_t length) {
    char path[PATH_MAX];
    if (!path_of(fd, path)) return real_posix_fallocate(fd, at, length);
    return size_ours(POSIX_FALLOCATE, fd, 0, at, length, path);
}

static int sync_ours(const char *operation, int (*call)(int), int fd, const char *path) {
    struct stat now;
    pthread_mutex_lock(&lock);
    /* Of a directory nothing is undone. */
    struct file *file = fstat(fd, &now) || !S_ISREG(now.st_mode) ? NULL : tracked(fd);
    int error = 0, hit = counted(operation, 0, 0, path);
    if (hit && fails()) {
        error = fault_errno;
        if (mode == LIES && file) give_up(file);
    } else {
        if (hit && mode == POWER) cut_power();
        if (hit && mode != AFTER && mode != SHORT) end_process();
        error = call(fd) ? errno : 0;
        if (hit && mode != SHORT) end_process();
        if (!error && file) settle(file);
    }
    pthread_mutex_unlock(&lock);
    return answer(error);
}

int fdatasync(int fd) {
    char path[PATH_MAX];
    if (!path_of(fd, path)) return real_fdatasync(fd);
    return sync_ours("fdatasync", real_fdatasync, fd, path);
}

int fsync(int fd) {
    char path[PATH_MAX];
    if (!path_of(fd, path)) return real_fsync(fd);
    return sync_ours("fsync", real_fsync, fd, path);
}

/* The path of the file that is mapped at an address, if it is one of ours. */
static int mapped_path(void *address, char *path) {
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[PATH_MAX + 200];
    int found = 0;
    while (maps && !found && fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        int start = 0;
        if (sscanf(line, "%lx-%lx %*s %*s %*s %*s %n", &from, &to, &start) < 2 || !start) continue;
        if ((unsigned long)address < from || (unsigned long)address >= to) continue;
        line[strcspn(line, "\n")] = 0;
        snprintf(path, PATH_MAX, "%.*s", PATH_MAX - 1, line + start);
        found = wanted_path(path);
        break;
    }
    if (maps) fclose(maps);
    return found;
}

int msync(void *address, size_t length, int flags) {
    char path[PATH_MAX];
    if (!mapped_path(address, path)) return real_msync(address, length, flags);
    int fd = real_openat(AT_FDCWD, path, O_RDWR | O_CLOEXEC);
    if (fd < 0) die(path);
    pthread_mutex_lock(&lock);
    struct file *file = tracked(fd);
    int error = 0, hit = counted("msync", 0, length, path);
    if (hit && fails()) {
        error = fault_errno;
        if (mode == LIES) give_up(file);
    } else {
        if (hit && mode == POWER) cut_power();
        if (hit && mode != AFTER && mode != SHORT) end_process();
        error = real_msync(address, length, flags) ? errno : 0;
        if (hit && mode != SHORT) end_process();
        if (!error && flags & MS_SYNC) {
            file->mapped = 1;
            settle(file);
        }
    }
    pthread_mutex_unlock(&lock);
    close(fd);
    return answer(error);
}

/* --- calls that write no bytes: they are looked at before they are made */

enum verdict { MAKE, FAIL, LAST };

static enum verdict looked_at(const char *operation, off_t at, size_t length, const char *path) {
    pthread_mutex_lock(&lock);
    int hit = counted(operation, at, length, path);
    pthread_mutex_unlock(&lock);
    if (!hit || mode == SHORT) return MAKE;
    if (fails()) {
        errno = fault_errno;
        return FAIL;
    }
    if (mode == AFTER) return LAST;
    if (mode == POWER) cut_power();
    end_process();
    return MAKE;
}

/* `watched` also sets `path`. */
#define LOOKED_AT(result, failure, operation, at, length, watched, call)                                               \
    char path[PATH_MAX];                                                                                              \
    if (!(watched)) return call;                                                                                      \
    enum verdict verdict = looked_at(operation, at, length, path);                                                     \
    if (verdict == FAIL) return failure;                                                                              \
    result done = call;                                                                                               \
    if (verdict == LAST) end_process();                                                                               \
    return done;

static int open_ours(int at, const char *name, int flags, mode_t access) {
    char path[PATH_MAX];
    if (!path_at(at, name, path)) return real_openat(at, name, flags, access);
    int error = errno;
    int new = flags & O_CREAT && faccessat(at, name, F_OK, AT_SYMLINK_NOFOLLOW);
    errno = error;
    enum verdict verdict = looked_at(new ? "create" : "open", 0, 0, path);
    if (verdict == FAIL) return -1;
    int fd = real_openat(at, name, flags, access);
    if (fd >= 0 && flags & O_TRUNC && !new) {
        pthread_mutex_lock(&lock);
        struct stat now;
        if (fstat(fd, &now)) die("fstat");
        for (int i = 0; i < file_count; i++)
            if (files[i].device == now.st_dev && files[i].inode == now.st_ino) add_change(&files[i], 0, NULL, 0, 0);
        pthread_mutex_unlock(&lock);
    }
    if (verdict == LAST) end_process();
    return fd;
}

#define ACCESS                                                                                                        \
    mode_t access = 0;                                                                                                \
    if (flags & (O_CREAT | O_TMPFILE)) {                                                                              \
        va_list more;                                                                                                 \
        va_start(more, flags);                                                                                        \
        access = va_arg(more, mode_t);                                                                                \
        va_end(more);                                                                                                 \
    }

int open(const char *name, int flags, ...) { ACCESS return open_ours(AT_FDCWD, name, flags, access); }
int open64(const char *name, int flags, ...) { ACCESS return open_ours(AT_FDCWD, name, flags | O_LARGEFILE, access); }
int openat(int at, const char *name, int flags, ...) { ACCESS return open_ours(at, name, flags, access); }
int openat64(int at, const char *name, int flags, ...) { ACCESS return open_ours(at, name, flags | O_LARGEFILE, access); }
int __open_2(const char *name, int flags) { return open_ours(AT_FDCWD, name, flags, 0); }
int __open64_2(const char *name, int flags) { return open_ours(AT_FDCWD, name, flags | O_LARGEFILE, 0); }
int __openat_2(int at, const char *name, int flags) { return open_ours(at, name, flags, 0); }
int __openat64_2(int at, const char *name, int flags) { return open_ours(at, name, flags | O_LARGEFILE, 0); }

ssize_t pread(int fd, void *data, size_t length, off_t at) {
    LOOKED_AT(ssize_t, -1, "pread", at, length, path_of(fd, path), real_pread(fd, data, length, at))
}

void *mmap(void *address, size_t length, int access, int how, int fd, off_t at) {
    char path[PATH_MAX];
    ready();
    if (how & MAP_ANONYMOUS || !path_of(fd, path)) return real_mmap(address, length, access, how, fd, at);
    enum verdict verdict = looked_at("mmap", at, length, path);
    if (verdict == FAIL) return MAP_FAILED;
    void *found = real_mmap(address, length, access, how, fd, at);
    if (found != MAP_FAILED && (how & MAP_TYPE) != MAP_PRIVATE && access & PROT_WRITE) {
        int error = errno;
        pthread_mutex_lock(&lock);
        tracked(fd)->mapped = 1;
        pthread_mutex_unlock(&lock);
        errno = error;
    }
    if (verdict == LAST) end_process();
    return found;
}

int renameat2(int at, const char *old, int new_at, const char *new, unsigned flags) {
    LOOKED_AT(int, -1, "rename", 0, 0, path_at(new_at, new, path), real_renameat2(at, old, new_at, new, flags))
}
int renameat(int at, const char *old, int new_at, const char *new) { return renameat2(at, old, new_at, new, 0); }
int rename(const char *old, const char *new) { return renameat2(AT_FDCWD, old, AT_FDCWD, new, 0); }

int unlinkat(int at, const char *name, int flags) {
    const char *operation = flags & AT_REMOVEDIR ? "rmdir" : "unlink";
    LOOKED_AT(int, -1, operation, 0, 0, path_at(at, name, path), real_unlinkat(at, name, flags))
}
int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }
int rmdir(const char *name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }

int mkdirat(int at, const char *name, mode_t access) {
    LOOKED_AT(int, -1, "mkdir", 0, 0, path_at(at, name, path), real_mkdirat(at, name, access))
}
int mkdir(const char *name, mode_t access) { return mkdirat(AT_FDCWD, name, access); }

/* off_t has 64 bits here, so these are the same calls by other names. */
_Static_assert(sizeof(off_t) == 8, "a 64-bit system");
ssize_t pread64(int fd, void *data, size_t length, off_t at) __attribute__((alias("pread")));
void *mmap64(void *address, size_t length, int access, int how, int fd, off_t at) __attribute__((alias("mmap")));
ssize_t pwrite64(int fd, const void *data, size_t length, off_t at) __attribute__((alias("pwrite")));
ssize_t pwritev64(int fd, const struct iovec *pieces, int count, off_t at) __attribute__((alias("pwritev")));
ssize_t pwritev64v2(int fd, const struct iovec *pieces, int count, off_t at, int flags)
    __attribute__((alias("pwritev2")));
int ftruncate64(int fd, off_t length) __attribute__((alias("ftruncate")));
int fallocate64(int fd, int how, off_t at, off_t length) __attribute__((alias("fallocate")));
int posix_fallocate64(int fd, off_t at, off_t length) __attribute__((alias("posix_fallocate")));
