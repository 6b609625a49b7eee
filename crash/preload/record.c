/* Preloaded into a program: notes each change that the program makes below one directory, in order.
 *
 *     RECORD_ROOT  the directory, as a path without symbolic links
 *     RECORD_LOG   the file to which the notes are appended
 *     RECORD_TOLD  the file that is the program's standard output; its size is noted before each change
 *
 * A note is a header (see `struct note`), two paths below RECORD_ROOT, and data. One lock orders the notes of all
 * threads and of all child processes. It is held while a call that changes something runs, so the order of the notes is
 * the order of the changes. It is free while a sync runs: a sync has a note for its beginning and one for its end.
 *
 * A file that is written through a stream of stdio or through a mapping changes without a call that can be seen here.
 * Such files have a shadow. Before each note, the file is compared with its shadow, and the differences are noted.
 *
 * Calls that bypass the C library (static programs, io_uring) are not seen.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { SHADOWS_MAX = 256, BLOCK = 512, NODE_BYTES_MAX = 1 << 28, HIGH_FD = 900 };

/* The numbers are those of crash/preload/notes.py. */
enum kind { SEEN = 1, CREATE, WRITE, SIZE, RENAME, UNLINK, MKDIR, LINK, SYNC_BEGIN, SYNC_END, TOLD, MAPPED, UNSEEN };

struct note {
    uint32_t kind, first_length, second_length, process;
    uint64_t inode; /* of a sync, 0 is all files */
    int64_t at; /* WRITE: the offset; SIZE, TOLD: the size; SYNC_BEGIN: whether there is a path */
    int64_t number; /* of a sync, in its process; TOLD: 1 if it was told, 0 if it may be in what follows */
    uint64_t length; /* of the data; that of SYNC_BEGIN is the first byte and the end, -1 for all */
};
_Static_assert(sizeof(struct note) == 48, "the header of a note");
_Static_assert(sizeof(off_t) == 8, "a 64-bit system");

struct shadow {
    dev_t device;
    ino_t inode;
    int fd; /* our own, so that the inode is not used again */
    char *data;
    size_t size;
};

static struct shadow shadows[SHADOWS_MAX];
static int shadow_count;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int on, log_fd = -1, told_fd = -1;
static off_t told_size;
static dev_t device;
static char root[PATH_MAX];
static size_t root_length;
static int64_t syncs;

#define REAL(result, name, ...) static result (*real_##name)(__VA_ARGS__)
REAL(int, open, const char *, int, ...);
REAL(int, openat, int, const char *, int, ...);
REAL(FILE *, fopen, const char *, const char *);
REAL(FILE *, freopen, const char *, const char *, FILE *);
REAL(FILE *, fdopen, int, const char *);
REAL(int, mkostemps, char *, int, int);
REAL(ssize_t, write, int, const void *, size_t);
REAL(ssize_t, pwrite, int, const void *, size_t, off_t);
REAL(ssize_t, writev, int, const struct iovec *, int);
REAL(ssize_t, pwritev, int, const struct iovec *, int, off_t);
REAL(ssize_t, pwritev2, int, const struct iovec *, int, off_t, int);
REAL(ssize_t, sendfile, int, int, off_t *, size_t);
REAL(ssize_t, copy_file_range, int, off_t *, int, off_t *, size_t, unsigned);
REAL(ssize_t, splice, int, off_t *, int, off_t *, size_t, unsigned);
REAL(int, ftruncate, int, off_t);
REAL(int, truncate, const char *, off_t);
REAL(int, fallocate, int, int, off_t, off_t);
REAL(int, posix_fallocate, int, off_t, off_t);
REAL(int, fsync, int);
REAL(int, fdatasync, int);
REAL(int, syncfs, int);
REAL(void, sync, void);
REAL(int, msync, void *, size_t, int);
REAL(void *, mmap, void *, size_t, int, int, int, off_t);
REAL(int, renameat2, int, const char *, int, const char *, unsigned);
REAL(int, linkat, int, const char *, int, const char *, int);
REAL(int, symlinkat, const char *, int, const char *);
REAL(int, unlinkat, int, const char *, int);
REAL(int, mkdirat, int, const char *, mode_t);

static void die(const char *why) {
    dprintf(2, "tidelog record.c: %s: %s\n", why, strerror(errno));
    _exit(96);
}

static int high(int fd) { /* out of the way of programs that close or count descriptors */
    int found = fcntl(fd, F_DUPFD_CLOEXEC, HIGH_FD);
    if (found < 0) found = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (found < 0) die("descriptors");
    close(fd);
    return found;
}

static void forked(void) { /* in a child: its shadows are those of its parent, and its lock is free */
    pthread_mutex_t free_one = PTHREAD_MUTEX_INITIALIZER;
    mutex = free_one;
}

static void begin(void) {
#define FIND(name) if (!(real_##name = dlsym(RTLD_NEXT, #name))) errno = ENOSYS, die(#name)
    FIND(open); FIND(openat); FIND(fopen); FIND(freopen); FIND(fdopen); FIND(mkostemps); FIND(write); FIND(pwrite);
    FIND(writev); FIND(pwritev); FIND(pwritev2); FIND(sendfile); FIND(copy_file_range); FIND(splice); FIND(ftruncate);
    FIND(truncate); FIND(fallocate); FIND(posix_fallocate); FIND(fsync); FIND(fdatasync); FIND(syncfs); FIND(sync);
    FIND(msync); FIND(mmap); FIND(renameat2); FIND(linkat); FIND(symlinkat); FIND(unlinkat); FIND(mkdirat);
    const char *where = getenv("RECORD_ROOT"), *log = getenv("RECORD_LOG"), *told = getenv("RECORD_TOLD");
    if (!where || !log || !told) return;
    struct stat now;
    snprintf(root, sizeof root, "%s", where);
    root_length = strlen(root);
    if (stat(root, &now)) die(root);
    device = now.st_dev;
    int fd = real_open(log, O_RDWR | O_APPEND | O_CLOEXEC);
    if (fd < 0) die(log);
    log_fd = high(fd);
    fd = real_open(told, O_RDONLY | O_CLOEXEC);
    if (fd < 0) die(told);
    told_fd = high(fd);
    pthread_atfork(NULL, NULL, forked);
    on = 1;
}

static void ready(void) { pthread_once(&once, begin); }

/* --- the log */

static void append(enum kind kind, ino_t inode, int64_t at, int64_t number, const char *first, const char *second,
                   const void *data, size_t length) {
    struct note note = {kind, (uint32_t)strlen(first), (uint32_t)strlen(second), (uint32_t)getpid(),
                        inode, at, number, length};
    struct iovec parts[] = {{&note, sizeof note}, {(void *)first, note.first_length},
                            {(void *)second, note.second_length}, {(void *)data, length}};
    size_t size = sizeof note + note.first_length + note.second_length + length;
    if (real_writev(log_fd, parts, 4) != (ssize_t)size) die("the log");
}

static char *contents(int fd, size_t size) {
    char *data = malloc(size + 1);
    if (!data) die("malloc");
    for (size_t at = 0; at < size;) {
        ssize_t got = pread(fd, data + at, size - at, (off_t)at);
        if (got < 0) die("pread");
        if (!got) {
            memset(data + at, 0, size - at); /* it was cut meanwhile, which the next look sees */
            break;
        }
        at += (size_t)got;
    }
    return data;
}

/* Note where the contents of a file differ from its shadow. They are its shadow from now on. */
static void compare(struct shadow *shadow, char *data, size_t size) {
    if (size < shadow->size) append(SIZE, shadow->inode, (int64_t)size, 0, "", "", NULL, 0);
    size_t end = shadow->size; /* the size as noted */
    if (size < end) end = size;
    for (size_t at = 0; at < size;) {
        size_t from = at;
        for (; at < size; at += BLOCK) {
            size_t length = size - at < BLOCK ? size - at : BLOCK;
            static const char zeros[BLOCK];
            size_t old = at < shadow->size ? shadow->size - at : 0;
            if (old > length) old = length;
            if (!memcmp(data + at, shadow->data + at, old) && !memcmp(data + at + old, zeros, length - old)) break;
        }
        if (at > size) at = size;
        if (at > from) {
            append(WRITE, shadow->inode, (int64_t)from, 0, "", "", data + from, at - from);
            if (at > end) end = at;
        }
        at = (at / BLOCK + 1) * BLOCK;
    }
    if (size > end) append(SIZE, shadow->inode, (int64_t)size, 0, "", "", NULL, 0);
    free(shadow->data);
    shadow->data = data;
    shadow->size = size;
}

static off_t told_now(void) {
    struct stat told;
    if (fstat(told_fd, &told)) die("fstat");
    return told.st_size;
}

/* Note what happened without a call. Other threads go on writing through mappings and to the output meanwhile. So the
 * files are read between two looks at the output: all promises before the first one are in what was read, and none of
 * those after the second one is. */
static void look(void) {
    static char *data[SHADOWS_MAX];
    static size_t sizes[SHADOWS_MAX];
    off_t before = told_now();
    for (int i = 0; i < shadow_count;) {
        struct stat now;
        if (fstat(shadows[i].fd, &now)) die("fstat");
        if (!now.st_nlink) {
            close(shadows[i].fd); /* it has no name any more */
            free(shadows[i].data);
            shadows[i] = shadows[--shadow_count];
            continue;
        }
        if (now.st_size > NODE_BYTES_MAX) errno = EFBIG, die("a file that is mapped or a stream");
        sizes[i] = (size_t)now.st_size;
        data[i] = contents(shadows[i].fd, sizes[i]);
        i++;
    }
    off_t after = told_now();
    int more = after != told_size;
    if (more) append(TOLD, 0, after, 0, "", "", NULL, 0);
    for (int i = 0; i < shadow_count; i++) compare(&shadows[i], data[i], sizes[i]);
    told_size = before;
    if (more) append(TOLD, 0, before, 1, "", "", NULL, 0);
}

/* Take the lock, and note what happened without a call. */
static void enter(void) {
    pthread_mutex_lock(&mutex);
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    while (fcntl(log_fd, F_SETLKW, &whole))
        if (errno != EINTR) die("the lock");
    look();
}

static void leave(void) {
    int error = errno;
    struct flock whole = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
    if (fcntl(log_fd, F_SETLK, &whole)) die("the lock");
    pthread_mutex_unlock(&mutex);
    errno = error;
}

__attribute__((destructor)) static void end(void) {
    if (!on) return;
    fflush(NULL);
    enter();
    leave();
}

/* --- which files are ours */

/* The part of an absolute path below the root; NULL if it lies elsewhere. "" is the root. */
static const char *below(const char *path) {
    if (strncmp(path, root, root_length) || (path[root_length] && path[root_length] != '/')) return NULL;
    const char *rest = path + root_length;
    return *rest ? rest + 1 : rest;
}

/* Whether a descriptor is a file or directory below the root; its path there, and what fstat says. */
static int ours(int fd, char *path, struct stat *now) {
    int error = errno;
    char link[40], found[PATH_MAX];
    ready();
    if (!on || fd < 0 || fstat(fd, now) || now->st_dev != device || !(S_ISREG(now->st_mode) || S_ISDIR(now->st_mode)))
        return errno = error, 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, found, PATH_MAX - 1);
    errno = error;
    if (length < 0) return 0;
    found[length] = 0;
    const char *rest = below(found);
    if (!rest) return 0;
    strcpy(path, rest);
    return 1;
}

static int ours_writable(int fd) {
    char path[PATH_MAX];
    struct stat now;
    return ours(fd, path, &now) && S_ISREG(now.st_mode);
}

/* A path without symbolic links in its directory, below the root; NULL if it lies elsewhere. */
static const char *resolve(int at, const char *path, char *room) {
    int error = errno;
    char full[2 * PATH_MAX], link[40], directory[PATH_MAX];
    const char *found = NULL;
    ready();
    if (!on || !path || !*path || strlen(path) >= PATH_MAX) return NULL;
    if (*path == '/') {
        strcpy(full, path);
    } else {
        if (at == AT_FDCWD) {
            if (!getcwd(directory, sizeof directory)) goto out;
        } else {
            snprintf(link, sizeof link, "/proc/self/fd/%d", at);
            ssize_t length = readlink(link, directory, PATH_MAX - 1);
            if (length < 0) goto out;
            directory[length] = 0;
        }
        snprintf(full, sizeof full, "%s/%s", directory, path);
    }
    for (size_t end = strlen(full); end > 1 && full[end - 1] == '/'; end--) full[end - 1] = 0;
    char *name = strrchr(full, '/');
    *name++ = 0;
    if (!realpath(*full ? full : "/", room)) goto out;
    if (strlen(room) + strlen(name) + 2 > PATH_MAX) goto out;
    if (strcmp(room, "/")) strcat(room, "/");
    strcat(room, name);
    found = below(room);
out:
    errno = error;
    return found;
}

static ino_t inode_at(const char *room) {
    struct stat now;
    int error = errno;
    ino_t inode = lstat(room, &now) ? 0 : now.st_ino;
    errno = error;
    return inode;
}

/* --- shadows */

static struct shadow *shadow_of(const struct stat *now) {
    for (int i = 0; i < shadow_count; i++)
        if (shadows[i].device == now->st_dev && shadows[i].inode == now->st_ino) return &shadows[i];
    return NULL;
}

/* From now on a file changes without calls. [locked] */
static void overshadow(int fd, const struct stat *now) {
    if (shadow_of(now)) return;
    if (shadow_count == SHADOWS_MAX) errno = EMFILE, die("too many files that are mapped or streams");
    char link[40];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int own = real_open(link, O_RDONLY | O_CLOEXEC);
    if (own < 0) die(link);
    struct shadow *shadow = &shadows[shadow_count++];
    *shadow = (struct shadow){now->st_dev, now->st_ino, high(own), NULL, (size_t)now->st_size};
    if (now->st_size > NODE_BYTES_MAX) errno = EFBIG, die("a file that is mapped or a stream");
    shadow->data = contents(shadow->fd, shadow->size);
}

/* --- the notes of changes; errno stays */

static void note_size(int fd, off_t before) {
    struct stat now;
    int error = errno;
    if (fstat(fd, &now)) die("fstat");
    if (shadow_of(&now)) look();
    else if (now.st_size != before) append(SIZE, now.st_ino, now.st_size, 0, "", "", NULL, 0);
    errno = error;
}

/* Bytes of a file were written: the file is read for them. */
static void note_write(int fd, off_t at, size_t length, int synchronous) {
    struct stat now;
    int error = errno;
    if (fstat(fd, &now)) die("fstat");
    if (shadow_of(&now)) {
        look();
    } else {
        char link[40], *data = malloc(length + 1);
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        int own = real_open(link, O_RDONLY | O_CLOEXEC);
        if (own < 0 || !data) die(link);
        for (size_t done = 0; done < length;) {
            ssize_t got = pread(own, data + done, length - done, at + (off_t)done);
            if (got <= 0) die("pread");
            done += (size_t)got;
        }
        close(own);
        append(WRITE, now.st_ino, at, 0, "", "", data, length);
        free(data);
    }
    if (synchronous || fcntl(fd, F_GETFL) & O_DSYNC) { /* a write, and a sync of its own bytes; O_SYNC has this bit */
        int64_t range[] = {at, at + (int64_t)length};
        append(SYNC_BEGIN, now.st_ino, 0, ++syncs, "", "", range, sizeof range);
        append(SYNC_END, now.st_ino, 0, syncs, "", "", NULL, 0);
    }
    errno = error;
}

/* What an open did. `existed` is whether the name was there before, `size` its size. */
static void note_open(int fd, int existed, off_t size) {
    char path[PATH_MAX];
    struct stat now;
    if (!ours(fd, path, &now)) return;
    int error = errno;
    append(existed ? SEEN : CREATE, now.st_ino, 0, 0, path, "", NULL, 0);
    if (existed && now.st_size != size) append(SIZE, now.st_ino, now.st_size, 0, "", "", NULL, 0);
    errno = error;
}

/* --- the calls */

static int open_ours(int at, const char *path, int flags, mode_t mode) {
    char room[PATH_MAX];
    struct stat before;
    ready();
    int writes = (flags & O_ACCMODE) != O_RDONLY || flags & (O_CREAT | O_TRUNC);
    if (!writes || !resolve(at, path, room)) {
        int fd = real_openat(at, path, flags, mode);
        return fd;
    }
    enter();
    if ((flags & O_TMPFILE) == O_TMPFILE) append(UNSEEN, 0, 0, 0, "a file without a name (O_TMPFILE)", "", NULL, 0);
    int existed = !stat(room, &before);
    int fd = real_openat(at, path, flags, mode);
    if (fd >= 0) note_open(fd, existed, existed ? before.st_size : 0);
    leave();
    return fd;
}

#define MODE                                                                                                          \
    mode_t mode = 0;                                                                                                  \
    if (flags & (O_CREAT | O_TMPFILE)) {                                                                              \
        va_list more;                                                                                                 \
        va_start(more, flags);                                                                                        \
        mode = va_arg(more, mode_t);                                                                                  \
        va_end(more);                                                                                                 \
    }

int open(const char *path, int flags, ...) { MODE return open_ours(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE return open_ours(AT_FDCWD, path, flags | O_LARGEFILE, mode); }
int openat(int at, const char *path, int flags, ...) { MODE return open_ours(at, path, flags, mode); }
int openat64(int at, const char *path, int flags, ...) { MODE return open_ours(at, path, flags | O_LARGEFILE, mode); }
int __open_2(const char *path, int flags) { return open_ours(AT_FDCWD, path, flags, 0); }
int __open64_2(const char *path, int flags) { return open_ours(AT_FDCWD, path, flags | O_LARGEFILE, 0); }
int __openat_2(int at, const char *path, int flags) { return open_ours(at, path, flags, 0); }
int __openat64_2(int at, const char *path, int flags) { return open_ours(at, path, flags | O_LARGEFILE, 0); }
int creat(const char *path, mode_t mode) { return open_ours(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return creat(path, mode); }

/* A stream of stdio was opened on a descriptor. [locked] */
static void stream_on(FILE *stream) {
    char path[PATH_MAX];
    struct stat now;
    if (stream && ours(fileno(stream), path, &now) && S_ISREG(now.st_mode)) overshadow(fileno(stream), &now);
}

static FILE *fopen_ours(const char *path, const char *how, FILE *stream) {
    char room[PATH_MAX];
    struct stat before;
    ready();
    if ((!strpbrk(how, "wa+")) || !resolve(AT_FDCWD, path, room))
        return stream ? real_freopen(path, how, stream) : real_fopen(path, how);
    if (stream) fflush(stream);
    enter();
    int existed = !stat(room, &before);
    FILE *found = stream ? real_freopen(path, how, stream) : real_fopen(path, how);
    if (found) {
        note_open(fileno(found), existed, existed ? before.st_size : 0);
        stream_on(found);
    }
    leave();
    return found;
}

FILE *fopen(const char *path, const char *how) { return fopen_ours(path, how, NULL); }
FILE *fopen64(const char *path, const char *how) { return fopen_ours(path, how, NULL); }
FILE *freopen(const char *path, const char *how, FILE *stream) {
    ready();
    return path ? fopen_ours(path, how, stream) : real_freopen(path, how, stream);
}
FILE *freopen64(const char *path, const char *how, FILE *stream) { return freopen(path, how, stream); }

FILE *fdopen(int fd, const char *how) {
    ready();
    if (!strpbrk(how, "wa+") || !ours_writable(fd)) return real_fdopen(fd, how);
    enter();
    FILE *found = real_fdopen(fd, how);
    stream_on(found);
    leave();
    return found;
}

int mkostemps(char *name, int suffix, int flags) {
    char room[PATH_MAX];
    ready();
    if (!resolve(AT_FDCWD, name, room)) return real_mkostemps(name, suffix, flags);
    enter();
    int fd = real_mkostemps(name, suffix, flags);
    if (fd >= 0) note_open(fd, 0, 0);
    leave();
    return fd;
}
int mkostemps64(char *name, int suffix, int flags) { return mkostemps(name, suffix, flags); }
int mkstemp(char *name) { return mkostemps(name, 0, 0); }
int mkstemp64(char *name) { return mkostemps(name, 0, 0); }
int mkostemp(char *name, int flags) { return mkostemps(name, 0, flags); }
int mkostemp64(char *name, int flags) { return mkostemps(name, 0, flags); }
int mkstemps(char *name, int suffix) { return mkostemps(name, suffix, 0); }
int mkstemps64(char *name, int suffix) { return mkostemps(name, suffix, 0); }

/* Where a write at the descriptor's own position begins. `flags` are those of pwritev2. [locked] */
static off_t position(int fd, int flags) {
    struct stat now;
    if (!(fcntl(fd, F_GETFL) & O_APPEND || flags & RWF_APPEND)) return lseek(fd, 0, SEEK_CUR);
    if (fstat(fd, &now)) die("fstat");
    return now.st_size;
}

/* `at` is that of the call; -1 for the descriptor's position. `flags` are those of pwritev2. */
#define WRITES(fd, at, call, flags)                                                                                         \
    ready();                                                                                                          \
    if (!ours_writable(fd)) return call;                                                                              \
    enter();                                                                                                          \
    off_t place = at;                                                                                                 \
    if (place < 0 || fcntl(fd, F_GETFL) & O_APPEND || (flags) & RWF_APPEND) place = position(fd, flags);               \
    ssize_t done = call;                                                                                              \
    if (done > 0) note_write(fd, place, (size_t)done, (flags) & (RWF_DSYNC | RWF_SYNC));                              \
    leave();                                                                                                          \
    return done;

ssize_t write(int fd, const void *data, size_t length) { WRITES(fd, -1, real_write(fd, data, length), 0) }
ssize_t pwrite(int fd, const void *data, size_t length, off_t at) {
    WRITES(fd, at, real_pwrite(fd, data, length, at), 0)
}
ssize_t writev(int fd, const struct iovec *parts, int count) { WRITES(fd, -1, real_writev(fd, parts, count), 0) }
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
    WRITES(fd, at, real_pwritev(fd, parts, count, at), 0)
}
ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t at, int flags) {
    WRITES(fd, at, real_pwritev2(fd, parts, count, at, flags), flags)
}
ssize_t sendfile(int out, int in, off_t *from, size_t length) {
    WRITES(out, -1, real_sendfile(out, in, from, length), 0)
}
ssize_t copy_file_range(int in, off_t *from, int out, off_t *to, size_t length, unsigned flags) {
    WRITES(out, to ? *to : -1, real_copy_file_range(in, from, out, to, length, flags), 0)
}
ssize_t splice(int in, off_t *from, int out, off_t *to, size_t length, unsigned flags) {
    WRITES(out, to ? *to : -1, real_splice(in, from, out, to, length, flags), 0)
}

/* A call that may change the size of a file. */
#define SIZES(fd, call)                                                                                               \
    char path[PATH_MAX];                                                                                              \
    struct stat now;                                                                                                  \
    ready();                                                                                                          \
    if (!ours(fd, path, &now) || !S_ISREG(now.st_mode)) return call;                                                  \
    enter();                                                                                                          \
    if (fstat(fd, &now)) die("fstat");                                                                                \
    int done = call;                                                                                                  \
    if (!done) note_size(fd, now.st_size);

int ftruncate(int fd, off_t size) {
    SIZES(fd, real_ftruncate(fd, size))
    leave();
    return done;
}

int truncate(const char *path, off_t size) {
    ready();
    int fd = open_ours(AT_FDCWD, path, O_WRONLY, 0);
    if (fd < 0) return -1;
    int done = ftruncate(fd, size), error = errno;
    close(fd);
    errno = error;
    return done;
}

int fallocate(int fd, int how, off_t at, off_t length) {
    SIZES(fd, real_fallocate(fd, how, at, length))
    if (fstat(fd, &now)) die("fstat");
    /* Holes, zeros and shifts: all that lies behind their beginning is noted anew. */
    if (!done && how & ~FALLOC_FL_KEEP_SIZE && at < now.st_size) note_write(fd, at, (size_t)(now.st_size - at), 0);
    leave();
    return done;
}

int posix_fallocate(int fd, off_t at, off_t length) {
    SIZES(fd, real_posix_fallocate(fd, at, length))
    leave();
    return done;
}

/* The number of a sync that begins now. */
static int64_t sync_begin(ino_t inode, const char *path) {
    int64_t all[] = {0, -1};
    enter();
    int64_t number = ++syncs;
    append(SYNC_BEGIN, inode, path != NULL, number, path ? path : "", "", all, sizeof all);
    leave();
    return number;
}

static void sync_end(ino_t inode, int64_t number) {
    enter();
    append(SYNC_END, inode, 0, number, "", "", NULL, 0);
    leave();
}

#define SYNCS(fd, call)                                                                                               \
    char path[PATH_MAX];                                                                                              \
    struct stat now;                                                                                                  \
    ready();                                                                                                          \
    if (!ours(fd, path, &now)) return call;                                                                           \
    int64_t number = sync_begin(now.st_ino, path);                                                                          \
    int done = call;                                                                                                  \
    if (!done) sync_end(now.st_ino, number);                                                                          \
    return done;

int fsync(int fd) { SYNCS(fd, real_fsync(fd)) }
int fdatasync(int fd) { SYNCS(fd, real_fdatasync(fd)) }

int syncfs(int fd) {
    struct stat now;
    ready();
    if (!on || fstat(fd, &now) || now.st_dev != device) return real_syncfs(fd);
    int64_t number = sync_begin(0, NULL);
    int done = real_syncfs(fd);
    if (!done) sync_end(0, number);
    return done;
}

void sync(void) {
    ready();
    if (!on) {
        real_sync();
        return;
    }
    int64_t number = sync_begin(0, NULL);
    real_sync();
    sync_end(0, number);
}

void *mmap(void *address, size_t length, int access, int how, int fd, off_t at) {
    char path[PATH_MAX];
    struct stat now;
    ready();
    int shared = (how & MAP_TYPE) == MAP_SHARED || (how & MAP_TYPE) == MAP_SHARED_VALIDATE;
    /* A descriptor for writing is enough: mprotect may come later. */
    if (!shared || how & MAP_ANONYMOUS || (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDWR || !ours(fd, path, &now))
        return real_mmap(address, length, access, how, fd, at);
    enter();
    void *found = real_mmap(address, length, access, how, fd, at);
    if (found != MAP_FAILED && access & PROT_WRITE) {
        overshadow(fd, &now);
        append(MAPPED, now.st_ino, 0, 0, path, "", NULL, 0);
    }
    leave();
    return found;
}
void *mmap64(void *address, size_t length, int access, int how, int fd, off_t at) {
    return mmap(address, length, access, how, fd, at);
}

/* The inode of the file of ours that is mapped at an address; 0 if there is none. */
static ino_t mapped_at(const void *address) {
    int fd = real_open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    FILE *maps = fd < 0 ? NULL : real_fdopen(fd, "r");
    char line[PATH_MAX + 200];
    ino_t found = 0;
    while (maps && !found && fgets(line, sizeof line, maps)) {
        unsigned long from, to, inode;
        int start = 0;
        if (sscanf(line, "%lx-%lx %*s %*s %*s %lu %n", &from, &to, &inode, &start) < 3 || !start) continue;
        if ((unsigned long)address < from || (unsigned long)address >= to) continue;
        line[strcspn(line, "\n")] = 0;
        if (!below(line + start)) break;
        found = inode;
    }
    if (maps) fclose(maps);
    return found;
}

int msync(void *address, size_t length, int flags) {
    ready();
    int error = errno;
    ino_t inode = on && flags & MS_SYNC ? mapped_at(address) : 0;
    errno = error;
    if (!inode) return real_msync(address, length, flags);
    int64_t number = sync_begin(inode, NULL);
    int done = real_msync(address, length, flags);
    if (!done) sync_end(inode, number);
    return done;
}

int renameat2(int at, const char *old, int new_at, const char *new, unsigned flags) {
    char room[PATH_MAX], new_room[PATH_MAX];
    ready();
    const char *from = resolve(at, old, room), *to = resolve(new_at, new, new_room);
    if (!from && !to) return flags ? real_renameat2(at, old, new_at, new, flags)
                                   : real_renameat2(at, old, new_at, new, 0);
    enter();
    ino_t inode = inode_at(room);
    int done = real_renameat2(at, old, new_at, new, flags);
    if (!done) {
        if (!from || !to || flags & RENAME_EXCHANGE)
            append(UNSEEN, 0, 0, 0, "a rename that exchanges two files or leaves the directory", "", NULL, 0);
        else if (inode != 0)
            append(RENAME, inode, 0, 0, from, to, NULL, 0);
    }
    leave();
    return done;
}
int renameat(int at, const char *old, int new_at, const char *new) { return renameat2(at, old, new_at, new, 0); }
int rename(const char *old, const char *new) { return renameat2(AT_FDCWD, old, AT_FDCWD, new, 0); }

int linkat(int at, const char *old, int new_at, const char *new, int flags) {
    char new_room[PATH_MAX];
    ready();
    const char *to = resolve(new_at, new, new_room);
    if (!to) return real_linkat(at, old, new_at, new, flags);
    enter();
    int done = real_linkat(at, old, new_at, new, flags);
    if (!done) append(LINK, inode_at(new_room), 0, 0, to, "", NULL, 0);
    leave();
    return done;
}
int link(const char *old, const char *new) { return linkat(AT_FDCWD, old, AT_FDCWD, new, 0); }

int symlinkat(const char *target, int at, const char *name) {
    char room[PATH_MAX];
    ready();
    const char *path = resolve(at, name, room);
    if (!path) return real_symlinkat(target, at, name);
    enter();
    int done = real_symlinkat(target, at, name);
    if (!done) append(UNSEEN, 0, 0, 0, "a symbolic link", "", NULL, 0);
    leave();
    return done;
}
int symlink(const char *target, const char *name) { return symlinkat(target, AT_FDCWD, name); }

int unlinkat(int at, const char *name, int flags) {
    char room[PATH_MAX];
    ready();
    const char *path = resolve(at, name, room);
    if (!path) return real_unlinkat(at, name, flags);
    enter();
    ino_t inode = inode_at(room);
    int done = real_unlinkat(at, name, flags);
    if (!done) append(UNLINK, inode, 0, 0, path, "", NULL, 0);
    leave();
    return done;
}
int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }
int rmdir(const char *name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }
int remove(const char *name) {
    struct stat now;
    return lstat(name, &now) ? -1 : unlinkat(AT_FDCWD, name, S_ISDIR(now.st_mode) ? AT_REMOVEDIR : 0);
}

int mkdirat(int at, const char *name, mode_t mode) {
    char room[PATH_MAX];
    ready();
    const char *path = resolve(at, name, room);
    if (!path) return real_mkdirat(at, name, mode);
    enter();
    int done = real_mkdirat(at, name, mode);
    if (!done) append(MKDIR, inode_at(room), 0, 0, path, "", NULL, 0);
    leave();
    return done;
}
int mkdir(const char *name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }

/* off_t has 64 bits here, so these are the same calls by other names. */
#define SAME(result, name, of, ...) result name(__VA_ARGS__) __attribute__((alias(#of)))
SAME(ssize_t, pwrite64, pwrite, int fd, const void *data, size_t length, off_t at);
SAME(ssize_t, pwritev64, pwritev, int fd, const struct iovec *parts, int count, off_t at);
SAME(ssize_t, pwritev64v2, pwritev2, int fd, const struct iovec *parts, int count, off_t at, int flags);
SAME(ssize_t, sendfile64, sendfile, int out, int in, off_t *from, size_t length);
SAME(int, ftruncate64, ftruncate, int fd, off_t size);
SAME(int, truncate64, truncate, const char *path, off_t size);
SAME(int, fallocate64, fallocate, int fd, int how, off_t at, off_t length);
SAME(int, posix_fallocate64, posix_fallocate, int fd, off_t at, off_t length);
