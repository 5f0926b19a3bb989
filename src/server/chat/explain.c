/* explain.c - see explain.h. */
#include "server/chat/explain.h"

#include "base/json.h"

static void put_token(struct buf *out, const struct tokenizer *t, const char *name, int32_t id)
{
	size_t n = 0;
	const char *p = id < 0 ? NULL : tokenizer_token_bytes(t, id, &n);

	buf_printf(out, ",\"%s\":", name);
	if (!p) {
		buf_puts(out, "null");
		return;
	}
	buf_printf(out, "{\"token\":%d,\"text\":", id);
	json_put_str(out, p, n);
	buf_putc(out, '}');
}

/* The message whose text holds this token; what comes before the first belongs
 * to none (tools, the template's own words). */
static int message_of(const struct explained *x, int pos)
{
	int m = -1;

	for (int i = 0; x->message_at && i < x->n_message; i++)
		if (x->message_at[i] >= 0 && x->message_at[i] <= pos)
			m = i;
	return m;
}

static void put_diff(struct buf *out, const struct tokenizer *t, const struct explained *x,
                     const struct prefix_report *r, bool secret)
{
	int m;

	if (r->first_diff < 0 || (size_t)r->first_diff >= x->ids->n) {
		buf_puts(out, "null");
		return;
	}
	buf_printf(out, "{\"position\":%d", r->first_diff);
	put_token(out, t, "before", secret ? -1 : r->was);
	put_token(out, t, "after", x->ids->id[r->first_diff]);
	m = message_of(x, r->first_diff);
	if (m >= 0)
		buf_printf(out, ",\"message\":%d}", m);
	else
		buf_puts(out, ",\"message\":null}");
}

void explain_put(struct buf *out, const struct tokenizer *t, const struct explained *x, const struct prefix_report *r,
                 bool secret)
{
	bool kept = r->source != PREFIX_NONE && r->place < PLACES;

	buf_printf(out,
	           "{\"prompt_tokens\":%zu,\"resumed_at\":%d,\"replayed\":%d,\"computed\":%zu,\"source\":\"%s\","
	           "\"reason\":\"%s\",\"place\":",
	           x->ids->n, r->resumed, r->replayed, x->ids->n - (size_t)r->resumed, prefix_source_name(r->source),
	           prefix_reason_name(r->reason));
	if (kept)
		buf_printf(out, "\"%s\"", place_name(r->place));
	else
		buf_puts(out, "null");
	buf_printf(out, ",\"denser_grid_saves\":%d,\"first_diff\":", prefix_spared(r));
	put_diff(out, t, x, r, secret);
	buf_printf(out, ",\"turns\":{\"recognised\":%d,\"tokens\":%d}}", x->n_turn, x->n_turn_token);
}
