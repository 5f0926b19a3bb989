/* folder.h - model folders made by hand, right or broken, for the tests of store and model. */
#ifndef TESTS_FOLDER_H
#define TESTS_FOLDER_H

#include <stddef.h>

/* A new empty folder under the system's temporary one; remove with folder_remove. */
char *folder_new(void);
void folder_remove(char *dir);
void folder_put(const char *dir, const char *file, const void *p, size_t n);
void folder_puts(const char *dir, const char *file, const char *text);
/* A safetensors file: the header as text, then n bytes of data, all zero. */
void folder_put_tensors(const char *dir, const char *file, const char *header, size_t n);
/* dir/file in a static buffer */
const char *folder_path(const char *dir, const char *file);

#endif
