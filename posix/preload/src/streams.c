/* What the header declares of a FILE, and no function of libc gives or sets. Programs read these
   fields too, by the macros of stdio.h, so they stay where they are. */

#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>

/* libc's own names of these are in no header. */
enum {
    UNBUFFERED = 0x2,
    NO_READS = 0x4,
    NO_WRITES = 0x8,
    ENDED = 0x10,
    FAILED = 0x20,
    BACKED_UP = 0x100,
    LINE_BUFFERED = 0x200,
    PUTTING = 0x800,
    APPENDING = 0x1000,
};

/* The descriptor that fileno tells of, and that freopen closes. */
void engram_stream_set_number(FILE *stream, int fd) {
    stream->_fileno = fd;
}

void engram_stream_set_failed(FILE *stream) {
    stream->_flags |= FAILED;
}

/* Whether bytes were read from it or written to it. */
int engram_stream_is_used(FILE *stream) {
    return (stream->_flags & (PUTTING | ENDED | FAILED | BACKED_UP)) != 0 ||
           stream->_IO_read_end != stream->_IO_read_base;
}

/* The bytes that it has yet to write; their number. */
size_t engram_stream_pending(FILE *stream, char **from) {
    *from = stream->_IO_write_base;
    return stream->_flags & PUTTING ? (size_t)(stream->_IO_write_ptr - stream->_IO_write_base) : 0;
}

/* As it is after freopen: nothing is read, and nothing is to be written. */
void engram_stream_reset(FILE *stream, int reads, int writes, int appends) {
    __fpurge(stream);
    char *base = stream->_IO_buf_base;
    stream->_IO_read_base = stream->_IO_read_ptr = stream->_IO_read_end = base;
    stream->_IO_write_base = stream->_IO_write_ptr = stream->_IO_write_end = base;
    stream->_flags &= ~(NO_READS | NO_WRITES | ENDED | FAILED | PUTTING | APPENDING);
    stream->_flags |= (reads ? 0 : NO_READS) | (writes ? 0 : NO_WRITES) | (appends ? APPENDING : 0);
    stream->_offset = -1;
}

static size_t room_of(FILE *stream) {
    return (size_t)(stream->_IO_buf_end - stream->_IO_buf_base);
}

/* Has it a buffer for so many bytes; one that is too small stays what it is for who gave it. */
static int see_to_room(FILE *stream, size_t size) {
    if (stream->_IO_buf_base == NULL || room_of(stream) < size) {
        size = size < BUFSIZ ? BUFSIZ : size;
        char *room = malloc(size);
        return room != NULL && setvbuf(stream, room, _IOFBF, size) == 0;
    }
    return 1;
}

static void carry_buffering(FILE *from, FILE *to) {
    if (from->_flags & UNBUFFERED) {
        setvbuf(to, NULL, _IONBF, 0);
    } else if (from->_flags & LINE_BUFFERED) {
        setvbuf(to, NULL, _IOLBF, 0);
    } else if (from->_IO_buf_base != NULL) {
        setvbuf(to, NULL, _IOFBF, 0);
    }
}

/* The bytes that were read ahead, and those that were pushed back before them. */
static void carry_read(FILE *from, FILE *to) {
    size_t first = (size_t)(from->_IO_read_end - from->_IO_read_ptr);
    int backed = (from->_flags & BACKED_UP) != 0;
    size_t second = backed ? (size_t)(from->_IO_save_end - from->_IO_save_base) : 0;
    if (first + second > 0 && see_to_room(to, first + second)) {
        char *base = to->_IO_buf_base;
        memcpy(base, from->_IO_read_ptr, first);
        if (second > 0) {
            memcpy(base + first, from->_IO_save_base, second);
        }
        to->_IO_read_base = to->_IO_read_ptr = base;
        to->_IO_read_end = base + first + second;
        to->_IO_write_base = to->_IO_write_ptr = to->_IO_write_end = base;
    }
    __fpurge(from);
}

/* A thread that waits for input in a stream has its lock, and may wait for ever. */
static int take(FILE *stream) {
    for (int i = 0; i < 1000; i++) {
        if (ftrylockfile(stream) == 0) {
            return 1;
        }
        sched_yield();
    }
    return 0;
}

/* One stream takes another's place: how it is buffered, its flags, and the bytes in its buffer. One
   that another thread is in stays as it is. */
void engram_stream_carry(FILE *from, FILE *to) {
    if (!take(from)) {
        return;
    }
    if (!take(to)) {
        funlockfile(from);
        return;
    }
    carry_buffering(from, to);
    char *pending;
    size_t size = engram_stream_pending(from, &pending);
    if (size > 0) {
        fwrite_unlocked(pending, 1, size, to);
        __fpurge(from);
    } else if (!(from->_flags & (NO_READS | PUTTING))) {
        carry_read(from, to);
    }
    to->_flags = (to->_flags & ~(ENDED | FAILED)) | (from->_flags & (ENDED | FAILED));
    funlockfile(to);
    funlockfile(from);
}
