/* Words of a message that name image files, however a person or a terminal writes them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/pictures.h"
#include "../check.h"

/* The paths that are found in text, each with where the rest goes on, as "path@end ". */
static void finds(const char *text, const char *want)
{
	struct picture_word w;
	char got[3 * PATH_MAX] = "";
	size_t at = 0;

	while (picture_next(text, at, &w)) {
		at = w.at + w.n;
		snprintf(got + strlen(got), sizeof got - strlen(got), "%s@%zu-%zu ", w.path, w.at, at);
	}
	CHECK(!strcmp(got, want), "%s: found \"%s\", wanted \"%s\"", text, got, want);
}

static void word(const char *text, const char *path, size_t end)
{
	struct picture_word w;

	picture_word(text, &w);
	CHECK(!strcmp(w.path, path) && w.at + w.n == end, "%s: \"%s\" to %zu", text, w.path, w.at + w.n);
}

static void make(const char *name)
{
	FILE *f = fopen(name, "w");

	CHECK(f && !fclose(f), "cannot make %s", name);
}

int main(void)
{
	static const char *const names[] = { "a.png", "b.JPG", "my cat.jpeg", "it's.webp", "c.gif", "d.txt" };
	char folder[] = "/tmp/pictures-XXXXXX", want[100];

	CHECK(mkdtemp(folder) && !chdir(folder), "no folder");
	CHECK(!setenv("HOME", folder, 1), "no HOME");
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		make(names[i]);

	finds("", "");
	finds("what is this", "");
	finds("what is a.png", "a.png@8-13 ");
	finds("a.png", "a.png@0-5 ");
	finds("compare ./a.png and b.JPG", "./a.png@8-15 b.JPG@20-25 ");
	/* Marks of a sentence. */
	finds("is it a.png?", "a.png@6-11 ");
	finds("(see a.png), and c.gif.", "a.png@5-10 c.gif@17-22 ");
	finds("the one (a.png)!", "a.png@9-14 ");
	/* Blanks and quotes. */
	finds("'my cat.jpeg' what", "my cat.jpeg@0-13 ");
	finds("see \"my cat.jpeg\".", "my cat.jpeg@4-17 ");
	finds("my\\ cat.jpeg what", "my cat.jpeg@0-12 ");
	finds("see it\\'s.webp", "it's.webp@4-14 ");
	finds("see it's.webp", "it's.webp@4-13 ");
	finds("my cat.jpeg", "");
	finds("he said \"look at a.png\"", "a.png@17-22 ");
	finds("'a.png\n' b.JPG", "a.png@1-6 b.JPG@9-14 ");
	/* Lines, and the home folder. */
	snprintf(want, sizeof want, "a.png@0-5 b.JPG@6-11 %s/c.gif@12-19 ", folder);
	finds("a.png\nb.JPG\t~/c.gif", want);
	/* No such file, another kind, a folder, part of a word. */
	finds("gone.png d.txt xa.png a.pngx a.png/b", "");
	finds(". .png / ' \" \\", "");

	word("  my\\ cat.jpeg what", "my cat.jpeg", 14);
	word("'gone for good.bmp'", "gone for good.bmp", 19);
	word("x", "x", 1);
	word(" ", "", 1);

	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		unlink(names[i]);
	rmdir(folder);
	return 0;
}
