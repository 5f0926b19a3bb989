/* mutate_json.c - changes an input whose first byte chooses and whose rest is a JSON document: mostly a value of the document
 * becomes another one, is scaled, or goes with its key, since bytes that are changed anywhere are seldom JSON afterwards.
 * For fuzzers alone; replays do not link it. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mutate.h"

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);

static const char *const values[] = {
	"0",
	"1",
	"-1",
	"2",
	"3",
	"4",
	"5",
	"8",
	"16",
	"64",
	"2147483647",
	"2147483648",
	"-2147483648",
	"1e9",
	"1e38",
	"1e-38",
	"-0",
	"{}",
	"1e300",
	"0.5",
	"-0.5",
	"[]",
	"[0]",
	"[1,2]",
	"[null]",
	"4294967296",
	"\"\"",
	"\"x\"",
	"true",
	"null",
	"false",
	"1e999",
	"[-1]",
	"[0,1,2,3,4,5,6,7]",
	"9223372036854775808",
	"1.0",
	"32",
	"48",
};
enum { N_VALUE = sizeof values / sizeof *values, N_PLACE = 4096 };

/* The end of the value that begins at `at`, which stands in no string. */
static size_t value_end(const uint8_t *p, size_t n, size_t at)
{
	int depth = 0;
	bool string = false;

	for (; at < n; at++) {
		if (string) {
			at += p[at] == '\\';
			string = at < n && p[at] != '"';
		} else if (p[at] == '"') {
			string = true;
		} else if (p[at] == '[' || p[at] == '{') {
			depth++;
		} else if (p[at] == ']' || p[at] == '}') {
			if (!depth--)
				break;
		} else if (p[at] == ',' && !depth) {
			break;
		}
	}
	return at < n ? at : n;
}

/* Begins of values: behind a colon, a comma of a list or its bracket. */
static int find_values(const uint8_t *p, size_t n, size_t *place)
{
	bool string = false;
	int found = 0;

	for (size_t i = 1; i < n && found < N_PLACE; i++) {
		if (string) {
			i += p[i] == '\\';
			string = i < n && p[i] != '"';
		} else if (p[i] == '"') {
			string = true;
		} else if (p[i] == ':' || p[i] == '[' || p[i] == ',') {
			place[found++] = i + 1;
		}
	}
	return found;
}

static size_t replace(uint8_t *data, size_t size, size_t max, size_t at, size_t end, const uint8_t *by, size_t n)
{
	if (size - (end - at) + n > max)
		return size;
	memmove(data + at + n, data + end, size - end);
	memcpy(data + at, by, n);
	return size - (end - at) + n;
}

/* The begin of the member or the element whose value begins at `at`: its key's quote, or `at` itself. */
static size_t member_begin(const uint8_t *p, size_t at)
{
	size_t i = at - 1;

	if (p[i] != ':')
		return at;
	while (i > 1 && p[i] != '"')
		i--;
	for (i -= i > 1; i > 1 && p[i] != '"';)
		i--;
	return i;
}

/* Takes out the member or the element whose value is [at, end), with the comma behind it or before it. */
static size_t take_out(uint8_t *data, size_t size, size_t at, size_t end)
{
	size_t begin = member_begin(data, at), comma = begin;

	if (end < size && data[end] == ',') {
		end++;
	} else {
		while (comma > 1 && strchr(" \t\r\n", data[comma - 1]))
			comma--;
		if (comma > 1 && data[comma - 1] == ',')
			begin = comma - 1;
	}
	memmove(data + begin, data + end, size - end);
	return size - (end - begin);
}

/* A number becomes 2^-8 to 2^24 times as much: sizes whose products and quotients leave their bounds. */
static size_t scale(uint8_t *data, size_t size, size_t max, size_t at, size_t end, unsigned by)
{
	char text[32];

	if (end - at >= sizeof text)
		return size;
	memcpy(text, data + at, end - at);
	text[end - at] = 0;
	snprintf(text, sizeof text, "%.0f", fmin(fabs(strtod(text, NULL)), 1e12) * ldexp(1, (int)(by % 33) - 8));
	return replace(data, size, max, at, end, (const uint8_t *)text, strlen(text));
}

/* One of the members whose value chooses how the rest is read gets another of its values. */
static size_t choose(uint8_t *data, size_t size, size_t max, const size_t *place, int n, unsigned by)
{
	const char *key, *value = mutate_choice(by / 64, &key);
	size_t len = strlen(key), begin;

	for (int i = 0, at = (int)(by % 64) % n; i < n; i++, at = (at + 1) % n) {
		begin = member_begin(data, place[at]);
		if (begin + len + 2 <= place[at] && data[begin + len + 1] == '"' && !memcmp(data + begin + 1, key, len))
			return replace(data, size, max, place[at], value_end(data, size, place[at]),
			               (const uint8_t *)value, strlen(value));
	}
	return size;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
	static size_t place[N_PLACE];
	unsigned r = seed * 2654435761u >> 8;
	int n = find_values(data, size, place);
	size_t at, end;

	if (r % 8 == 0 || !n)
		return LLVMFuzzerMutate(data, size, max);
	at = place[r / 8 % (unsigned)n];
	end = value_end(data, size, at);
	r = (r * 2246822519u + 374761393u) >> 5;
	if (r % 8 == 5 && r / 8 % 4 == 0)
		return choose(data, size, max, place, n, r / 32);
	if (r % 8 == 1)
		return take_out(data, size, at, end);
	if (r % 8 == 2 || r % 8 == 3)
		return scale(data, size, max, at, end, r / 8);
	if (r % 4 == 0) { /* another value of the document */
		size_t from = place[r / 4 % (unsigned)n], to = value_end(data, size, from);
		uint8_t *copy = malloc(to - from + 1);

		memcpy(copy, data + from, to - from);
		size = replace(data, size, max, at, end, copy, to - from);
		free(copy);
		return size;
	}
	return replace(data, size, max, at, end, (const uint8_t *)values[r / 4 % N_VALUE],
	               strlen(values[r / 4 % N_VALUE]));
}
