/* pictures.c - see pictures.h. */
#include "cli/pictures.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

static const char blanks[] = " \t\r\n";

static bool is_picture(const char *path)
{
	static const char *const ends[] = { ".png", ".jpg", ".jpeg", ".webp", ".gif" };
	const char *dot = strrchr(path, '.');
	struct stat st;

	for (size_t i = 0; dot && i < sizeof ends / sizeof *ends; i++)
		if (!strcasecmp(dot, ends[i]))
			return !stat(path, &st) && S_ISREG(st.st_mode);
	return false;
}

/* The characters of s[0..n) without the backslashes, where they are read, into path; false: they do not fit. */
static bool set_path(struct picture_word *w, const char *s, size_t n, bool backslashes)
{
	const char *home = getenv("HOME");
	size_t len = 0;

	if (n > 1 && s[0] == '~' && s[1] == '/' && home) {
		len = strlen(home);
		if (len >= sizeof w->path)
			return false;
		memcpy(w->path, home, len);
		s++;
		n--;
	}
	for (size_t i = 0; i < n; i++) {
		if (backslashes && s[i] == '\\' && i + 1 < n)
			i++;
		if (len + 1 >= sizeof w->path)
			return false;
		w->path[len++] = s[i];
	}
	w->path[len] = 0;
	return true;
}

/* Bytes of the word at s, which begins with a quote; 0: the quote does not end in its line. */
static size_t quoted(const char *s)
{
	size_t n = 1 + strcspn(s + 1, *s == '"' ? "\"\n" : "'\n");

	return s[n] == *s ? n + 1 : 0;
}

/* Bytes of the word at s up to a blank that has no backslash before it, or to where it is longer than a path can be. */
static size_t plain(const char *s)
{
	size_t n = 0;

	while (n < PATH_MAX && s[n] && !strchr(blanks, s[n]))
		n += s[n] == '\\' && s[n + 1] ? 2 : 1;
	return n;
}

/* The word at `at` as it is, or without the marks of a sentence behind it. */
static bool plain_picture(const char *text, size_t at, struct picture_word *w)
{
	for (size_t n = plain(text + at); n; n--) {
		*w = (struct picture_word){ .at = at, .n = n };
		if (set_path(w, text + at, n, true) && is_picture(w->path))
			return true;
		if (!strchr(".,;:!?)]}>\"'", text[at + n - 1]))
			return false;
	}
	return false;
}

bool picture_next(const char *text, size_t from, struct picture_word *out)
{
	for (size_t at = from; text[at += strspn(text + at, blanks)];) {
		size_t n = text[at] == '"' || text[at] == '\'' ? quoted(text + at) : 0;

		*out = (struct picture_word){ .at = at, .n = n };
		if (n && set_path(out, text + at + 1, n - 2, false) && is_picture(out->path))
			return true;
		if (plain_picture(text, at, out))
			return true;
		at += strchr("([{<\"'", text[at]) ? 1 : plain(text + at);
	}
	return false;
}

void picture_word(const char *text, struct picture_word *out)
{
	size_t at = strspn(text, blanks), n = text[at] == '"' || text[at] == '\'' ? quoted(text + at) : 0;
	bool is_quoted = n > 0;

	if (!is_quoted)
		n = plain(text + at);
	*out = (struct picture_word){ .at = at, .n = n };
	if (!set_path(out, text + at + is_quoted, n - 2 * is_quoted, !is_quoted))
		out->n = 0;
}
