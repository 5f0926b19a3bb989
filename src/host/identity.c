/* identity.c - see identity.h. */
#include "host/identity.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "engine/prefix/prefix_pack.h"
#include "engine/prefix/spill_share.h"

/* A file is believed to be as it was only if it had not changed for this long when
 * it was read: file systems count time in steps, the coarsest of two seconds, and a
 * change within the same step would not show. */
static const int64_t SETTLED_NS = 3ll * 1000000000;

/* Most files that "weights" remembers, and most bytes of a line of it. */
enum { REMEMBERED = 4096, LINE = 256 };

static const char file_name[] = "weights";

/* ---- parts ---- */

/* The digest of all parts, and that of one part. */
struct sums {
	struct sha256 all, part;
};

static void put_field(struct sums *h, const void *p, size_t n)
{
	sha256_field(&h->all, p, n);
	sha256_field(&h->part, p, n);
}

static void put_text(struct sums *h, const char *s)
{
	put_field(h, s ? s : "", s ? strlen(s) : 0);
}

static void put_check(struct sums *h, const void *p, size_t n)
{
	struct check128 c = check128(p, n, NULL, 0);

	put_field(h, &c, sizeof(c));
}

static int put_file(struct sums *h, const char *path, struct err *err)
{
	struct file_map m;
	int rc = file_map_open(&m, path, err);

	if (rc)
		return rc;
	put_field(h, m.p, m.n);
	file_map_close(&m);
	return 0;
}

static int put_document(struct sums *h, const struct store *st, const char *name, bool needed, struct err *err)
{
	struct buf b;
	int rc;

	buf_init(&b);
	rc = store_document(st, name, &b, err);
	if (rc == E_MISSING && !needed)
		rc = 0;
	if (!rc)
		put_field(h, b.p, b.n);
	buf_fini(&b);
	return rc;
}

/* Adds results of the C library's functions: the library comes with the machine, in versions for
 * its processor, and does not promise the last bits. */
static void put_functions(struct sums *h)
{
	enum { POINTS = 512 };
	double v[POINTS][5];
	float f[POINTS][5];

	memset(v, 0, sizeof(v));
	memset(f, 0, sizeof(f));
	for (int i = 0; i < POINTS; i++) {
		double x = (i + 1) * 0.0371;
		float y = (float)x;

		v[i][0] = exp(-x);
		v[i][1] = log(x);
		v[i][2] = pow(x, 1.37);
		v[i][3] = sin(x);
		v[i][4] = cos(x);
		f[i][0] = expf(-y);
		f[i][1] = logf(1 + y);
		f[i][2] = sinf(y);
		f[i][3] = cosf(y);
		f[i][4] = powf(y, 1.37f);
	}
	put_check(h, v, sizeof(v));
	put_check(h, f, sizeof(f));
}

/* ---- weights ---- */

struct known {
	struct file_id id;
	struct check128 sum;
};

struct memory {
	struct known *v;
	int n;
	bool changed;
};

static bool same_file(const struct file_id *a, const struct file_id *b)
{
	return a->device == b->device && a->inode == b->inode && a->bytes == b->bytes &&
	       a->changed_ns == b->changed_ns && a->modified_ns == b->modified_ns;
}

static void line_put(const struct known *k, char out[LINE])
{
	int n = snprintf(out, LINE,
	                 "%" PRIx64 " %" PRIx64 " %" PRIx64 " %" PRIx64 " %" PRIx64 " %016" PRIx64 "%016" PRIx64,
	                 k->id.device, k->id.inode, k->id.bytes, (uint64_t)k->id.changed_ns,
	                 (uint64_t)k->id.modified_ns, k->sum.hi, k->sum.lo);

	snprintf(out + n, LINE - (size_t)n, " %016" PRIx64 "\n", check64(out, (size_t)n));
}

/* A line that would not be written exactly so, with its checksum, is ignored. */
static bool line_get(const char *line, struct known *k)
{
	uint64_t changed, modified, own;
	char again[LINE];

	if (sscanf(line,
	           "%" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %16" SCNx64 "%16" SCNx64 " %16" SCNx64,
	           &k->id.device, &k->id.inode, &k->id.bytes, &changed, &modified, &k->sum.hi, &k->sum.lo, &own) != 8)
		return false;
	k->id.changed_ns = (int64_t)changed;
	k->id.modified_ns = (int64_t)modified;
	line_put(k, again);
	return !strcmp(line, again);
}

static void memory_read(struct memory *m, const char *path)
{
	char line[LINE];
	FILE *f = file_exists(path) ? fopen(path, "re") : NULL; /* a pipe or a device would never end */

	*m = (struct memory){ .v = xcalloc(REMEMBERED, sizeof(*m->v)) };
	while (f && m->n < REMEMBERED - 1 && fgets(line, sizeof(line), f))
		m->n += line_get(line, &m->v[m->n]);
	if (f)
		fclose(f);
}

/* Writes dir/name: first under a temporary name, which the next start removes, and renamed when it is whole.  A failure is
 * logged.  The next start then computes again what the file would have remembered. */
static void write_beside(const char *dir, const char *name, const struct buf *text)
{
	char own[SPILL_TMP_NAME];
	struct spill_owner owner;
	struct buf tmp, path;
	FILE *f;
	bool bad;

	buf_init(&tmp);
	buf_init(&path);
	spill_owner_begin(&owner);
	spill_tmp_name(&owner, name, own);
	buf_printf(&tmp, "%s/%s", dir, own);
	buf_printf(&path, "%s/%s", dir, name);
	f = fopen(tmp.p, "wxe");
	bad = !f;
	if (f)
		bad |= fwrite(text->p, 1, text->n, f) != text->n || fflush(f) || fsync(fileno(f));
	if (f)
		bad |= fclose(f) != 0;
	if (bad || rename(tmp.p, path.p)) {
		log_warn("%s: cannot write: %s", path.p, strerror(errno));
		unlink(tmp.p);
	}
	spill_owner_end(&owner);
	buf_fini(&path);
	buf_fini(&tmp);
}

static void memory_write(const struct memory *m, const char *dir)
{
	struct buf text;
	char line[LINE];

	buf_init(&text);
	for (int i = 0; i < m->n; i++) {
		line_put(&m->v[i], line);
		buf_puts(&text, line);
	}
	write_beside(dir, file_name, &text);
	buf_fini(&text);
}

static struct check128 sum_of(struct memory *m, const struct store_file *f)
{
	struct known k = { .id = f->map.id };
	struct file_id now;
	struct timespec ts;
	int at = 0;

	while (at < m->n && !same_file(&m->v[at].id, &k.id))
		at++;
	if (at < m->n)
		return m->v[at].sum;
	clock_gettime(CLOCK_REALTIME, &ts);
	k.sum = check128(f->map.p, f->map.n, NULL, 0);
	/* As it was before, and for long enough: it may be remembered. */
	if (!file_id_get(f->path, &now, NULL) && same_file(&now, &k.id) &&
	    (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec - k.id.changed_ns > SETTLED_NS) {
		/* The oldest line goes when there are too many. */
		if (m->n == REMEMBERED - 1)
			memmove(m->v, m->v + 1, (size_t)--m->n * sizeof(*m->v));
		m->v[m->n++] = k;
		m->changed = true;
	}
	return k.sum;
}

static void put_weights(struct sums *h, const struct store *st, const char *dir)
{
	struct memory m;
	struct buf path;

	buf_init(&path);
	if (dir)
		buf_printf(&path, "%s/%s", dir, file_name);
	memory_read(&m, path.p);
	for (int i = 0; i < st->n_file; i++) {
		struct check128 c = sum_of(&m, &st->file[i]);

		put_field(h, &c, sizeof(c));
	}
	if (m.changed && dir)
		memory_write(&m, dir);
	free(m.v);
	buf_fini(&path);
}

/* ---- all of it ---- */

static int put_templates(struct sums *h, const struct session *s, const struct host_opts *o, struct err *err)
{
	struct store_templates own;

	if (o->answer.template_file)
		return put_file(h, o->answer.template_file, err);
	/* A session that needs them has read them before. */
	(void)store_templates_read(s->store, &own, NULL);
	if (!own.n)
		put_text(h, NULL);
	for (size_t i = 0; i < own.n; i++)
		put_text(h, own.v[i].text);
	store_templates_end(&own);
	return 0;
}

/* Sizes and formats of the numbers in a model's caches. */
static void describe_caches(const struct model *m, struct buf *out)
{
	caches_describe(&m->caches, out);
	if (m->lengthened)
		buf_puts(out, "; rotation of long sequences");
}

static void put_caches(struct sums *h, const struct model *m)
{
	struct buf text;

	put_text(h, m->arch);
	put_field(h, &m->opts.arith, sizeof(m->opts.arith));
	buf_init(&text);
	describe_caches(m, &text);
	put_field(h, text.p, text.n);
	buf_fini(&text);
}

/* Says so if the folder's prefixes are of another arithmetic, and records this one. */
static void tell_arithmetic(const char *dir)
{
	static const char name[] = "arithmetic";
	struct buf path, now;
	char line[LINE] = "";
	FILE *f;

	buf_init(&path);
	buf_init(&now);
	buf_printf(&path, "%s/%s", dir, name);
	buf_printf(&now, "%d\n", ARITHMETIC);
	f = file_exists(path.p) ? fopen(path.p, "re") : NULL; /* a pipe or a device would never end */
	if (f && !fgets(line, sizeof(line), f))
		line[0] = '\0';
	if (f)
		fclose(f);
	if (strcmp(line, now.p)) {
		line[strcspn(line, "\n")] = '\0';
		if (strspn(line, "0123456789") == strlen(line) && *line)
			log_warn(
				"prompt cache %s: prefixes of arithmetic %s are not used by this program, which has %d",
				dir, line, ARITHMETIC);
		write_beside(dir, name, &now);
	}
	buf_fini(&now);
	buf_fini(&path);
}

/* ---- what it stands for ---- */

static void tell(struct buf *about, const char *name, const char *text)
{
	buf_printf(about, "%s\"%s\": ", about->n ? ",\n " : "{", name);
	json_put_cstr(about, text);
}

static void tell_digest(struct buf *about, const char *name, const struct digest *d)
{
	char hex[2 * sizeof(d->b) + 1];

	hex_put(hex, d->b, sizeof(d->b));
	tell(about, name, hex);
}

static void part_begin(struct sums *h)
{
	sha256_init(&h->part);
}

static void part_end(struct sums *h, struct buf *about, const char *name)
{
	struct digest d;

	sha256_end(&h->part, &d);
	if (name)
		tell_digest(about, name, &d);
}

/* Adds what results depend on besides the model: arithmetic, precision, order. */
static void put_computing(struct sums *h, const struct session *s, struct buf *about)
{
	const uint8_t number[] = { ARITHMETIC & 255, ARITHMETIC >> 8 };
	struct buf text;

	buf_init(&text);
	part_begin(h);
	put_field(h, number, sizeof(number));
	put_text(h, s->be->arithmetic);
	put_text(h, s->be->order);
	put_caches(h, s->model);
	part_end(h, about, NULL);
	buf_printf(&text, "%d %s", ARITHMETIC, s->be->arithmetic);
	tell(about, "arithmetic", text.p);
	tell(about, "precision", s->model->opts.arith == ARITH_F32 ? "f32" : "fast");
	tell(about, "order", s->be->order ? s->be->order : "");
	buf_reset(&text);
	describe_caches(s->model, &text);
	tell(about, "caches", text.p);
	buf_fini(&text);
	part_begin(h);
	put_functions(h);
	part_end(h, about, "functions");
}

static int put_model(struct sums *h, const struct session *s, const struct host_opts *o, struct buf *about,
                     struct err *err)
{
	int rc;

	part_begin(h);
	put_weights(h, s->store, o->disk.dir);
	part_end(h, about, "weights");
	part_begin(h);
	rc = put_document(h, s->store, "config.json", true, err);
	part_end(h, about, "config");
	part_begin(h);
	if (!rc)
		rc = put_document(h, s->store, "tokenizer.json", false, err);
	part_end(h, about, "tokenizer");
	part_begin(h);
	if (!rc)
		rc = put_templates(h, s, o, err);
	part_end(h, about, "template");
	return rc;
}

int identity_of(const struct session *s, const struct host_opts *o, struct digest *out, struct buf *about,
                struct err *err)
{
	struct sums h;
	int rc = o->disk.dir ? dir_make(o->disk.dir, err) : 0;

	if (rc)
		return rc;
	if (o->disk.dir)
		tell_arithmetic(o->disk.dir);
	buf_reset(about);
	sha256_init(&h.all);
	part_begin(&h);
	put_text(&h, "weft, what kept prefixes are a function of, 3");
	part_end(&h, about, NULL);
	tell(about, "program", "weft " WEFT_VERSION);
	tell(about, "model", s->store->name);
	tell(about, "architecture", s->model->arch);
	put_computing(&h, s, about);
	rc = put_model(&h, s, o, about, err);
	sha256_end(&h.all, out);
	tell_digest(about, "identity", out);
	buf_puts(about, "}\n");
	return rc;
}

int identity_of_weights(const struct store *st, const char *dir, struct digest *out, struct err *err)
{
	struct sums h;
	int rc = dir_make(dir, err);

	if (rc)
		return rc;
	sha256_init(&h.all);
	sha256_init(&h.part);
	put_text(&h, "weft, weights, 1");
	put_weights(&h, st, dir);
	sha256_drop(&h.part);
	sha256_end(&h.all, out);
	return 0;
}

int identity_of_draft(const struct draft_source *d, const struct host_opts *o, const struct digest *of,
                      struct digest *out, struct err *err)
{
	const struct store *st = d->store;
	struct sums h;
	int rc = 0;

	sha256_init(&h.all);
	sha256_init(&h.part);
	put_text(&h, "weft, what a drafter keeps, 1");
	put_field(&h, of->b, sizeof(of->b));
	put_caches(&h, d->model);
	if (st) {
		put_weights(&h, st, o->disk.dir);
		rc = put_document(&h, st, "config.json", true, err);
	}
	sha256_drop(&h.part);
	sha256_end(&h.all, out);
	return rc;
}

/* ---- comparing ---- */

/* Index at which the first word that differs begins. */
static size_t parting(const char *a, const char *b)
{
	size_t n = 0;

	while (a[n] && a[n] == b[n])
		n++;
	while (n && a[n - 1] != ' ')
		n--;
	return n;
}

static const char *member(const struct json *j, const char *name)
{
	size_t n;
	const char *s = json_str(json_get(j, name), &n);

	return s ? s : "";
}

static int differs(const struct json *theirs, const struct json *ours, struct err *err)
{
	static const struct {
		const char *name, *what;
	} parts[] = {
		{ "weights", "the model's weights" },
		{ "config", "config.json" },
		{ "tokenizer", "the tokenizer" },
		{ "template", "the chat template" },
		{ "arithmetic", "the arithmetic" },
		{ "precision", "--arith" },
		{ "caches", "how keys and values are kept" },
		{ "order", "the order of states in memory" },
		{ "functions", "results of the C library's functions" },
	};

	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
		const char *a = member(theirs, parts[i].name), *b = member(ours, parts[i].name);
		size_t n = parting(a, b);

		if (strcmp(a, b))
			return err_set(err, i ? E_UNSUPPORTED : E_MISSING,
			               "%s differs (in the pack \"%.80s\", of %.60s; here \"%.80s\", of %.60s)",
			               parts[i].what, a + n, member(theirs, "model"), b + n, member(ours, "model"));
	}
	return err_set(err, E_FORMAT, "its digest is another, and nothing that it names differs");
}

int identity_compare(const char *theirs, const char *ours, struct err *err)
{
	struct err why = { 0 };
	struct json *a = json_parse(theirs, strlen(theirs), 4, &why), *b = json_parse(ours, strlen(ours), 4, NULL);
	int rc = a && b ? differs(a, b, err) : err_set(err, E_FORMAT, "what it is of cannot be read: %s", why.msg);

	json_free(a);
	json_free(b);
	return rc;
}
