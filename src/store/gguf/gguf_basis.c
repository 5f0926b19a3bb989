/* gguf_basis.c - hadamard.json from the keys prism.hadamard.* (basis_file.h). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "store/gguf/gguf_conf.h"

#define PREFIX "prism.hadamard."

/* The tensors of the model that the file's tensor of that name becomes; one that no table has is named as it is. */
static void put_names(const struct gguf_model *m, const struct gguf_value *v, struct buf *out)
{
	const uint8_t *at = v->p;
	const char *comma = "";

	for (uint64_t i = 0; i < v->n; i++) {
		struct gguf_string s = gguf_next(&at);
		char name[GGUF_NAME_BYTES];
		struct gguf_named n;

		snprintf(name, sizeof name, "%.*s", s.n < sizeof name ? (int)s.n : (int)sizeof name - 1, s.p);
		gguf_name_of(m, name, &n);
		for (int k = 0; k < (n.n ? n.n : 1); k++) {
			struct buf whole;

			buf_init(&whole);
			buf_printf(&whole, "%s%s%s", n.n ? n.prefix : "", n.block, n.n ? n.name[k]->hf : name);
			buf_puts(out, comma);
			json_put_str(out, whole.p, whole.n);
			buf_fini(&whole);
			comma = ",";
		}
	}
}

static int put_value(const struct gguf_model *m, const struct gguf_value *v, struct buf *out, struct err *err)
{
	const struct gguf *g = &m->part[0];
	int code = 0;

	if (v->array)
		buf_putc(out, '[');
	if (v->kind == GGUF_STRING && v->array)
		put_names(m, v, out);
	for (uint64_t i = 0; i < v->n && !code && !(v->kind == GGUF_STRING && v->array); i++) {
		const uint8_t *at = v->p;
		struct gguf_string s;
		int64_t number = 0;
		bool flag = false;

		if (i)
			buf_putc(out, ',');
		if (v->kind == GGUF_STRING) {
			s = gguf_next(&at);
			json_put_str(out, s.p, s.n);
		} else if (v->kind == GGUF_BOOL) {
			code = gguf_bool(g, v, i, &flag, err);
			buf_puts(out, flag ? "true" : "false");
		} else {
			code = gguf_int(g, v, i, &number, err);
			buf_printf(out, "%" PRId64, number);
		}
	}
	if (v->array)
		buf_putc(out, ']');
	return code;
}

/* Columns of ssm_out cannot be moved to the order of heads of these files, since that would mix blocks: they are in the
 * order of training, and a key says so. */
static int check_order(const struct gguf_model *m, struct err *err)
{
	const struct gguf_value *names = gguf_find(&m->part[0], PREFIX "weight_names"),
				*grouped = gguf_find(&m->part[0], PREFIX "gdn_v_grouped");
	struct gguf_conf c = { .m = m, .err = err };
	const uint8_t *at = names && names->kind == GGUF_STRING ? names->p : NULL;
	static const char tail[] = ".ssm_out.weight";
	bool is = false, there = false;

	for (uint64_t i = 0; at && i < names->n; i++) {
		struct gguf_string s = gguf_next(&at);

		there |= s.n >= sizeof tail - 1 && !memcmp(s.p + s.n - (sizeof tail - 1), tail, sizeof tail - 1);
	}
	if (!there || gguf_conf_int(&c, "ssm.time_step_rank", 0) == gguf_conf_int(&c, "ssm.group_count", 0))
		return c.code;
	if (grouped && (c.code = gguf_bool(&m->part[0], grouped, 0, &is, err)))
		return c.code;
	if (!is)
		gguf_conf_fail(&c, E_UNSUPPORTED,
		               "key " PREFIX "gdn_v_grouped: is not true, although ssm_out is rotated");
	return c.code;
}

int gguf_basis(const struct gguf_model *m, struct buf *out, struct err *err)
{
	const struct gguf *g = &m->part[0];
	size_t n = 0;
	int code = check_order(m, err);

	for (size_t i = 0; i < g->n_kv && !code; i++) {
		if (strncmp(g->kv[i].key, PREFIX, strlen(PREFIX)))
			continue;
		buf_putc(out, n++ ? ',' : '{');
		json_put_cstr(out, g->kv[i].key);
		buf_putc(out, ':');
		code = put_value(m, &g->kv[i], out, err);
	}
	if (!code && !n)
		return err_set(err, E_MISSING, "%s: has no keys " PREFIX "*", g->path);
	buf_putc(out, '}');
	return code;
}
