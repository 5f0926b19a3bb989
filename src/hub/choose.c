/* choose.c - see choose.h.  GGUF files are chosen as llama.cpp's -hf does, so that one name means one file to both. */
#include "hub/choose.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/json.h"

enum { SHOWN_MAX = 300 };

static bool ends(const char *s, const char *tail)
{
	size_t n = strlen(s), m = strlen(tail);

	return n >= m && !strcmp(s + n - m, tail);
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static void begin(struct hub_choice *c, const struct hub_tree *t)
{
	*c = (struct hub_choice){ .v = xcalloc((size_t)t->n + 1, sizeof *c->v),
		                  .has = xcalloc((size_t)t->n + 1, sizeof *c->has),
		                  .model = -1,
		                  .index = -1 };
}

static void add(struct hub_choice *c, int i)
{
	if (!c->has[i])
		c->v[c->n++] = i;
	c->has[i] = true;
}

void hub_choose_all(const struct hub_tree *t, struct hub_choice *out)
{
	begin(out, t);
	for (int i = 0; i < t->n; i++)
		add(out, i);
}

void hub_choice_free(struct hub_choice *c)
{
	free(c->v);
	free(c->has);
	*c = (struct hub_choice){ 0 };
}

/* ---- GGUF ---- */

bool hub_split_of(const char *path, int *part, int *count)
{
	size_t n = strlen(path);
	int end = 0;

	return n > HUB_SPLIT_TAIL &&
	       sscanf(path + n - HUB_SPLIT_TAIL, "-%5d-of-%5d.%*1[gG]%*1[gG]%*1[uU]%*1[fF]%n", part, count, &end) ==
	               2 &&
	       end == HUB_SPLIT_TAIL;
}

static bool is_model(const char *path)
{
	static const char *const others[] = { "mmproj", "imatrix", "mtp-", "eagle3-", "dflash-", "dspark-" };
	const char *name = base_name(path);

	if (!ends(name, ".gguf"))
		return false;
	for (size_t i = 0; i < sizeof others / sizeof *others; i++)
		if (strstr(name, others[i]))
			return false;
	return true;
}

bool hub_has_type(const char *path, const char *type)
{
	size_t n = strlen(type);

	for (const char *p = path; (p = strcasestr(p, type)); p++)
		if (p[n] == '.' || p[n] == '-')
			return true;
	return false;
}

static int find_model(const struct hub_tree *t, const char *type)
{
	int part, count;

	for (int i = 0; i < t->n; i++)
		if (is_model(t->v[i].path) && (!type || hub_has_type(t->v[i].path, type)) &&
		    !(hub_split_of(t->v[i].path, &part, &count) && part != 1))
			return i;
	return -1;
}

/* The bits that a file's name says: the first number of its last word. */
static int bits_of(const char *path)
{
	char name[512];
	int part, count;
	size_t n = strlen(path);
	char *word;

	n -= hub_split_of(path, &part, &count) ? HUB_SPLIT_TAIL : ends(path, ".gguf") ? 5 : 0;
	snprintf(name, sizeof name, "%.*s", (int)n, path);
	word = name + strlen(name);
	while (word > name && !strchr("-./", word[-1]))
		word--;
	while (*word && !isdigit((unsigned char)*word))
		word++;
	return atoi(word);
}

/* The folders that a path begins with and that `of` has too: their characters, or -1 where path's own folder is not
 * of's or above it. */
static int common_folder(const char *path, const char *of)
{
	size_t n = (size_t)(base_name(path) - path);

	return strncmp(path, of, n) ? -1 : (int)n;
}

int hub_sidecar(const struct hub_tree *t, int model, const char *word, const char *type)
{
	const char *of = t->v[model].path;
	bool projector = !strcmp(word, "mmproj");
	char dotted[80];
	int best = -1, best_folder = -1, best_far = 0;
	int bits = type && !projector ? bits_of(type) : bits_of(of);

	snprintf(dotted, sizeof dotted, "-%s.", type ? type : "");
	for (int i = 0; i < t->n; i++) {
		const char *path = t->v[i].path;
		int folder = common_folder(path, of), far = abs(bits_of(path) - bits);

		if (!ends(path, ".gguf") || !strstr(path, word) || folder < 0)
			continue;
		if (type && !projector && strcasestr(path, dotted))
			far = -1;
		if (folder > best_folder || (folder == best_folder && far < best_far)) {
			best = i;
			best_folder = folder;
			best_far = far;
		}
	}
	return best;
}

static int add_parts(const struct hub_tree *t, int model, struct hub_choice *out, struct err *err)
{
	const char *path = t->v[model].path;
	size_t n = strlen(path);
	int part, count, p, of, found = 0;
	int *at; /* [count]: 1 + the index of each part; 0: none */

	if (!hub_split_of(path, &part, &count)) {
		add(out, model);
		return 0;
	}
	at = xcalloc((size_t)count + 1, sizeof *at);
	for (int i = 0; i < t->n; i++)
		if (hub_split_of(t->v[i].path, &p, &of) && of == count && p >= 1 && p <= count && !at[p - 1] &&
		    strlen(t->v[i].path) == n && !strncasecmp(t->v[i].path, path, n - HUB_SPLIT_TAIL))
			at[p - 1] = i + 1;
	for (int i = 0; i < count; i++)
		if (at[i]) {
			add(out, at[i] - 1);
			found++;
		}
	free(at);
	return found == count ? 0 : err_set(err, E_MISSING, "%s: the hub has %d of its %d parts", path, found, count);
}

/* What there is, for a message. */
static void put_list(struct buf *b, const struct hub_tree *t, bool models)
{
	int part, count, shown = 0;

	for (int i = 0; i < t->n; i++) {
		const char *path = t->v[i].path;

		if ((models ? !is_model(path) : *path == '.') || (hub_split_of(path, &part, &count) && part > 1))
			continue;
		if (b->n > SHOWN_MAX) {
			buf_puts(b, ", ...");
			return;
		}
		buf_printf(b, "%s%s", shown++ ? ", " : "", path);
	}
}

static int choose_gguf(const struct hub_tree *t, const char *type, bool projector, struct hub_choice *out,
                       struct err *err)
{
	int model = find_model(t, type ? type : "Q4_K_M"), code;
	struct buf there;

	if (model < 0 && !type && (model = find_model(t, "Q8_0")) < 0)
		model = find_model(t, NULL);
	if (model >= 0) {
		out->model = model;
		code = add_parts(t, model, out, err);
		model = projector && !code ? hub_sidecar(t, model, "mmproj", type) : -1;
		if (model >= 0)
			add(out, model);
		return code;
	}
	buf_init(&there);
	put_list(&there, t, type != NULL);
	code = type ? err_set(err, E_MISSING, "no GGUF file of type %s; %s%s", type,
	                      there.n ? "there are: " : "there are none", there.p) :
	              err_set(err, E_MISSING, "neither safetensors nor GGUF files in it%s%s", there.n ? ", but: " : "",
	                      there.p);
	buf_fini(&there);
	return code;
}

/* ---- folders ---- */

/* Configuration, tokenizer and templates. */
static bool is_setting(const char *path)
{
	static const char *const tails[] = { ".json", ".txt", ".model", ".jinja", ".tiktoken", ".jsonl" };

	if (strchr(path, '/'))
		return !strncmp(path, "additional_chat_templates/", 26);
	if (ends(path, ".index.json"))
		return !strcmp(path, "model.safetensors.index.json");
	for (size_t i = 0; i < sizeof tails / sizeof *tails; i++)
		if (ends(path, tails[i]))
			return true;
	return false;
}

static int find(const struct hub_tree *t, const char *path)
{
	for (int i = 0; i < t->n; i++)
		if (!strcmp(t->v[i].path, path))
			return i;
	return -1;
}

static bool is_weights(const char *path)
{
	return !strchr(path, '/') && ends(path, ".safetensors") && strncmp(path, "consolidated", 12) != 0;
}

/* The folder's files, the shards that an index names left out. */
static void choose_folder(const struct hub_tree *t, struct hub_choice *out)
{
	int whole = find(t, "model.safetensors");

	for (int i = 0; i < t->n; i++)
		if (is_setting(t->v[i].path))
			add(out, i);
	out->index = find(t, "model.safetensors.index.json");
	if (out->index >= 0)
		return;
	for (int i = 0; i < t->n; i++)
		if (whole >= 0 ? i == whole : is_weights(t->v[i].path))
			add(out, i);
}

static int by_path(const void *a, const void *b, void *tree)
{
	const struct hub_tree *t = tree;

	return strcmp(t->v[*(const int *)a].path, t->v[*(const int *)b].path);
}

/* The index of path, by sorted[t->n], the files in the order of their paths; -1: none. */
static int find_sorted(const struct hub_tree *t, const int *sorted, const char *path)
{
	int low = 0, high = t->n;

	while (low < high) {
		int mid = low + (high - low) / 2, order = strcmp(t->v[sorted[mid]].path, path);

		if (!order)
			return sorted[mid];
		if (order < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return -1;
}

int hub_choose_shards(const struct hub_tree *t, const char *index, size_t n, struct hub_choice *out, struct err *err)
{
	static const char file[] = "model.safetensors.index.json";
	struct json *root = json_parse_python(index, n, 0, err);
	struct hub_tree order = *t;
	struct json_cursor c;
	const struct json *shard;
	const char *key;
	int code = 0, found = 0;
	int *sorted;

	if (!root)
		return err_prefix(err, "%s", file);
	sorted = xcalloc((size_t)t->n + 1, sizeof *sorted);
	for (int i = 0; i < t->n; i++)
		sorted[i] = i;
	qsort_r(sorted, (size_t)t->n, sizeof *sorted, by_path, &order);
	for (c = json_first(json_get(root, "weight_map")); !code && json_next(&c, &key, &shard); found++) {
		const char *path = json_str(shard, NULL);
		int i = path ? find_sorted(t, sorted, path) : -1;

		if (!path)
			code = err_set(err, E_FORMAT, "%s: weight_map: '%.80s' has no file name", file, key);
		else if (i < 0)
			code = err_set(err, E_MISSING, "%s names %.200s, which the hub does not have", file, path);
		else
			add(out, i);
	}
	if (!code && !found)
		code = err_set(err, E_FORMAT, "%s: no weight_map in it", file);
	free(sorted);
	json_free(root);
	return code;
}

int hub_choose(const struct hub_tree *t, const char *type, bool projector, struct hub_choice *out, struct err *err)
{
	bool folder = false;

	begin(out, t);
	for (int i = 0; i < t->n; i++)
		folder |= is_weights(t->v[i].path);
	if (type || !folder)
		return choose_gguf(t, type, projector, out, err);
	choose_folder(t, out);
	return 0;
}
