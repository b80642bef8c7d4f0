/* Functions of any number of arguments. Stable Rust cannot define one: each packs its arguments,
   and calls the function that takes them packed. Rust exports it under its name (variadic! in
   real.rs). */

#include <stdarg.h>

typedef struct _IO_FILE FILE;

int vdprintf(int fd, const char *format, va_list values);
int __vdprintf_chk(int fd, int flag, const char *format, va_list values);
void vsyslog(int priority, const char *format, va_list values);
void __vsyslog_chk(int priority, int flag, const char *format, va_list values);
int vfwprintf(FILE *stream, const void *format, va_list values);
int vwprintf(const void *format, va_list values);
int __vfwprintf_chk(FILE *stream, int flag, const void *format, va_list values);
int __vwprintf_chk(int flag, const void *format, va_list values);
int vfwscanf(FILE *stream, const void *format, va_list to);
int vwscanf(const void *format, va_list to);
int __isoc99_vfwscanf(FILE *stream, const void *format, va_list to);
int __isoc99_vwscanf(const void *format, va_list to);
int __isoc23_vfwscanf(FILE *stream, const void *format, va_list to);
int __isoc23_vwscanf(const void *format, va_list to);

#define PACKED(call)                                                                               \
    va_list values;                                                                                \
    va_start(values, format);                                                                      \
    int done = call;                                                                               \
    va_end(values);                                                                                \
    return done

int engram_dprintf(int fd, const char *format, ...) {
    PACKED(vdprintf(fd, format, values));
}

int engram_dprintf_chk(int fd, int flag, const char *format, ...) {
    PACKED(__vdprintf_chk(fd, flag, format, values));
}

int engram_fwprintf(FILE *stream, const void *format, ...) {
    PACKED(vfwprintf(stream, format, values));
}

int engram_fwprintf_chk(FILE *stream, int flag, const void *format, ...) {
    PACKED(__vfwprintf_chk(stream, flag, format, values));
}

int engram_wprintf(const void *format, ...) {
    PACKED(vwprintf(format, values));
}

int engram_wprintf_chk(int flag, const void *format, ...) {
    PACKED(__vwprintf_chk(flag, format, values));
}

int engram_fwscanf(FILE *stream, const void *format, ...) {
    PACKED(vfwscanf(stream, format, values));
}

int engram_wscanf(const void *format, ...) {
    PACKED(vwscanf(format, values));
}

int engram_isoc99_fwscanf(FILE *stream, const void *format, ...) {
    PACKED(__isoc99_vfwscanf(stream, format, values));
}

int engram_isoc99_wscanf(const void *format, ...) {
    PACKED(__isoc99_vwscanf(format, values));
}

int engram_isoc23_fwscanf(FILE *stream, const void *format, ...) {
    PACKED(__isoc23_vfwscanf(stream, format, values));
}

int engram_isoc23_wscanf(const void *format, ...) {
    PACKED(__isoc23_vwscanf(format, values));
}

void engram_syslog(int priority, const char *format, ...) {
    va_list values;
    va_start(values, format);
    vsyslog(priority, format, values);
    va_end(values);
}

void engram_syslog_chk(int priority, int flag, const char *format, ...) {
    va_list values;
    va_start(values, format);
    __vsyslog_chk(priority, flag, format, values);
    va_end(values);
}
