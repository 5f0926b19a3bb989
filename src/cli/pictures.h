/* pictures.h - paths of image files among the words of a message that was typed. */
#ifndef CLI_PICTURES_H
#define CLI_PICTURES_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

struct picture_word {
	size_t at, n; /* where it stands in the text, with its quotes */
	char path[PATH_MAX];
};

/* The first word of text from `from` on that names a file which is there and whose name ends as those of images do (png, jpg,
 * jpeg, webp, gif); false: there is none.  from is 0 or the end of a word.  A word may stand in quotes, or have backslashes before
 * its blanks, as terminals write a file that is dropped on them; ~/ is the home folder, and marks of a sentence may follow. */
bool picture_next(const char *text, size_t from, struct picture_word *out);

/* The first word of text, whatever it names: out->n 0: there is none, or it is longer than a path can be. */
void picture_word(const char *text, struct picture_word *out);

#endif
