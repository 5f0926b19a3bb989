/* system.h - what C and POSIX.1-2008 have no call for.
 *
 * Each operating system is a folder of src/base/, which meson.build chooses: linux/, or posix/, which any other takes
 * until it has its own (-Dportable=true builds it on Linux).  A folder implements this header, memory.h, cpu_system.h,
 * reads_ring.h, and the functions that pages.h names.  Where posix/ cannot do a thing, each contract says what it does. */
#ifndef BASE_SYSTEM_H
#define BASE_SYSTEM_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* n bytes that cannot be guessed, from the system.  Ends the work (fault_abort) where it gives none. */
void system_random(void *to, size_t n);

/* A number that processes have in common if the id of one means the same process to all of them: of this boot of this machine
 * and this namespace of ids.  0: not known.  posix/: of the machine's name. */
uint64_t system_processes(void);

/* The path of the running program's file, ended by a 0; E_UNSUPPORTED: the system does not tell it (posix/). */
int system_program(char *to, size_t size, struct err *err);
/* The words of the command line, the program's name first, each ended by a 0; E_UNSUPPORTED as above. */
int system_words(size_t max, struct buf *out, struct err *err);

/* Gives the calling thread, and no other, the lowest priority.  posix/: does nothing. */
void system_background(void);

/* The allocator's settings for a server: memory that was freed goes back to the system, and free() never takes long.
 * posix/: both do nothing. */
void system_heap_begin(void);
/* Gives back to the system what was freed; it takes milliseconds for gigabytes. */
void system_heap_trim(void);

/* Looks after idle_s seconds of silence whether the peer of a TCP socket is there.  posix/: after the system's own time,
 * which is hours. */
void system_keep_alive(int fd, int idle_s);

/* Opens a file to read from it past the system's cache; -1 with EINVAL: it cannot be read so (posix/: none can). */
int system_open_direct(const char *path);

#endif
