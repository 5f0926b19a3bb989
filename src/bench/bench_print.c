/* bench_print.c - rows of `weft bench`, as a table and as JSON. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"

void bench_name(const struct bench_row *r, char *out, size_t size)
{
	char depth[24] = "", batch[16] = "";
	const char *drafts = r->drafts ? " +drafts" : "";

	if (r->depth)
		snprintf(depth, sizeof depth, " @ d%d", r->depth);
	if (r->batch > 1)
		snprintf(batch, sizeof batch, " x%d", r->batch);
	snprintf(out, size, "%s%d%s%s%s", r->n_gen ? "tg" : "pp", r->n_gen ? r->n_gen : r->n_prompt, depth, batch,
	         drafts);
}

double bench_median(const struct bench_row *r)
{
	int n = r->n_run;

	return n ? (r->rate[(n - 1) / 2] + r->rate[n / 2]) / 2 : 0;
}

/* Seconds that an amount takes at that rate; infinite where the rate is not known. */
static double seconds_of(double amount, double rate)
{
	return amount > 0 ? amount / rate : 0;
}

static double floor_at(const struct bench_row *r, double int8, const char **by)
{
	struct op_cost all = profile_total(&r->cost);
	double read = seconds_of(all.bytes, r->ceilings.read);
	double compute = seconds_of(all.int_ops, int8) + seconds_of(all.float_ops, r->ceilings.f32) +
	                 seconds_of(all.bf16_ops, r->ceilings.bf16);
	double longer = read > compute ? read : compute;

	*by = read > compute ? "read" : "compute";
	return longer > 0 ? r->tokens / longer : 0;
}

static void take_moved(const char *name, double from, double to, const char **most, double *a, double *b)
{
	double high = from > to ? from : to, low = from > to ? to : from;

	if (low > 0 && (!*most || high / low > (*a > *b ? *a / *b : *b / *a))) {
		*most = name;
		*a = from;
		*b = to;
	}
}

double bench_ceiling_moved(const struct bench_row *r, const char **name, double *from, double *to)
{
	struct op_cost all = profile_total(&r->cost);
	const struct ceilings *a = &r->before, *b = &r->after;
	const char *by;

	*name = NULL;
	*from = *to = 1;
	bench_floor(r, &by);
	if (!strcmp(by, "read"))
		take_moved("read", a->read, b->read, name, from, to);
	else {
		if (all.int_ops > 0)
			take_moved("int8", a->int8, b->int8, name, from, to);
		if (all.float_ops > 0)
			take_moved("f32", a->f32, b->f32, name, from, to);
		if (all.bf16_ops > 0)
			take_moved("bf16", a->bf16, b->bf16, name, from, to);
	}
	return (*from > *to ? *from / *to : *to / *from) - 1;
}

double bench_floor(const struct bench_row *r, const char **by)
{
	return floor_at(r, r->ceilings.int8, by);
}

double bench_floor_vectors(const struct bench_row *r)
{
	const char *by = "read";
	bool any = r->ceilings.int8_vectors > 0 && profile_total(&r->cost).int_ops > 0;
	double least = any ? floor_at(r, r->ceilings.int8_vectors, &by) : 0;

	return strcmp(by, "compute") ? 0 : least;
}

static const char *arith_name(const struct session *s)
{
	return s->model->opts.arith == ARITH_F32 ? "f32" : "fast";
}

void bench_print_head(const struct session *s, struct buf *out)
{
	buf_printf(
		out,
		"%s: %s, %.0f million parameters, %.0f MB; %s, %d threads, %s arithmetic, up to %d tokens a step\nkeys and values: ",
		s->store->name, s->model->arch, (double)s->model->shape.params / 1e6,
		(double)s->model->shape.weight_bytes / 1e6, s->be->level, s->be->threads, arith_name(s), s->step_rows);
	kv_describe(out, s->kv, &s->model->shape);
	buf_printf(out, "\n\n%-20s %9s %7s %9s %6s  %-8s %10s %12s %12s %12s\n", "test", "tokens/s", "spread", "floor",
	           "share", "bound by", "read GB/s", "int8 Gop/s", "bf16 Gop/s", "f32 Gop/s");
}

/* Prints in words why the row's share of the floor may be wrong, a line for each reason; nothing where there is none. */
static void put_doubts(const struct bench_row *r, double median, double least, struct buf *out)
{
	const char *name;
	double from, to;

	if (least <= 0)
		buf_printf(out, "%-20s no floor: a ceiling could not be measured\n", "");
	else if (median > least)
		buf_printf(out, "%-20s above its floor: the ceilings were measured while the machine gave less\n", "");
	if (bench_ceiling_moved(r, &name, &from, &to) > 0.1)
		buf_printf(out,
		           "%-20s %s was at %.1f G/s before this row and %.1f after: measure again when it is quiet\n",
		           "", name, from / 1e9, to / 1e9);
}

/* Tokens a second that reading what was not in memory allows; 0: nothing was read, or the disk is not known. */
static double disk_floor(const struct bench_row *r)
{
	const struct bench_experts *x = &r->experts;

	return x->bytes > 0 ? r->all_tokens * x->disk / x->bytes : 0;
}

static void put_experts(const struct bench_row *r, struct buf *out)
{
	const struct bench_experts *x = &r->experts;
	double median = bench_median(r), least = disk_floor(r);

	if (!x->slots)
		return;
	buf_printf(out, "%-20s experts: slots for %d of %d, %.1f %% there", "", x->slots, x->of,
	           x->used > 0 ? 100 * (x->hits - x->ahead_used) / x->used : 0);
	if (x->ahead > 0)
		buf_printf(out, ", %.1f %% read ahead (in vain: %.0f %% of all that was)",
		           100 * x->ahead_used / x->used, 100 * (1 - x->ahead_used / x->ahead));
	buf_printf(out, "; %.2f MB read a token, %.0f ms waited a second", x->bytes / 1e6 / r->all_tokens,
	           1e3 * x->wait / x->seconds);
	if (least > 0)
		buf_printf(out, "\n%-20s disk: %.2f GB/s, %.0f %% of it used; its floor %.2f tokens/s, share %.0f %%",
		           "", x->disk / 1e9, 100 * x->bytes / x->seconds / x->disk, least, 100 * median / least);
	buf_putc(out, '\n');
}

static void put_tables(const struct bench_row *r, struct buf *out)
{
	const struct bench_tables *x = &r->tables;

	if (x->tables)
		buf_printf(out, "%-20s tables on disk: %.1f KB read a token, %.2f ms waited a second\n", "",
		           x->bytes / 1e3 / r->all_tokens, 1e3 * x->wait / x->seconds);
}

void bench_print_row(const struct bench_row *r, struct buf *out)
{
	const char *by;
	double median = bench_median(r), least = bench_floor(r, &by), vectors = bench_floor_vectors(r);
	char name[48];

	bench_name(r, name, sizeof name);
	buf_printf(out, "%-20s %9.1f %6.1f%% ", name, median, 100 * (r->rate[r->n_run - 1] - r->rate[0]) / median);
	if (least > 0)
		buf_printf(out, "%9.1f %5.0f%%  %-8s", least, 100 * median / least, by);
	else
		buf_printf(out, "%9s %6s  %-8s", "none", "", "");
	buf_printf(out, " %10.1f %12.0f ", r->ceilings.read / 1e9, r->ceilings.int8 / 1e9);
	if (r->ceilings.bf16 > 0)
		buf_printf(out, "%12.0f", r->ceilings.bf16 / 1e9);
	else
		buf_printf(out, "%12s", "");
	buf_printf(out, " %12.0f\n", r->ceilings.f32 / 1e9);
	if (vectors > 0)
		buf_printf(out, "%-20s %9s %6s  %9.1f %5.0f%%  without tiles, at %.0f Gop/s of int8\n", "", "", "",
		           vectors, 100 * median / vectors, r->ceilings.int8_vectors / 1e9);
	put_doubts(r, median, least, out);
	put_experts(r, out);
	put_tables(r, out);
	if (r->joules > 0)
		buf_printf(out, "%-20s %.3f joules a token, of whatever ran on the processors\n", "",
		           r->joules / r->all_tokens);
	if (r->drafts)
		buf_printf(out, "%-20s %8.2fx without; %.2f tokens a step; of %.0f guesses %.0f came true\n", "",
		           median / r->plain, r->all_tokens / r->all_steps / r->batch, r->drafted, r->accepted);
}

static int slower(const void *a, const void *b)
{
	const struct op_cost *x = *(const struct op_cost *const *)a, *y = *(const struct op_cost *const *)b;

	return (x->ns < y->ns) - (x->ns > y->ns);
}

/* The operations by falling time. */
static int by_time(const struct profile *f, const struct op_cost *row[PROFILE_ROWS])
{
	for (int i = 0; i < f->n; i++)
		row[i] = &f->row[i];
	qsort(row, (size_t)f->n, sizeof(*row), slower);
	return f->n;
}

/* Time, and of bytes and operations what was reached while it took. */
static void print_cost(const char *op, const char *what, double calls, const struct op_cost *c,
                       const struct bench_row *r, struct buf *out)
{
	double ns = (double)c->ns;

	buf_printf(out, "  %-9s %-28s %8.1f %10.3f %5.1f%%", op, what, calls, ns / 1e6 / r->steps,
	           100 * ns / (double)r->cost_ns);
	if (c->bytes > 0)
		buf_printf(out, " %8.2f", c->bytes / ns);
	else
		buf_printf(out, " %8s", "");
	if (c->int_ops > 0)
		buf_printf(out, " %9.1f", c->int_ops / ns);
	else
		buf_printf(out, " %9s", "");
	if (c->bf16_ops > 0)
		buf_printf(out, " %9.1f", c->bf16_ops / ns);
	else
		buf_printf(out, " %9s", "");
	if (c->float_ops > 0)
		buf_printf(out, " %9.1f", c->float_ops / ns);
	buf_putc(out, '\n');
}

void bench_print_profile(const struct bench_row *r, struct buf *out)
{
	const struct op_cost *row[PROFILE_ROWS];
	struct op_cost all = profile_total(&r->cost), rest = { .ns = r->cost_ns - all.ns };
	int n = by_time(&r->cost, row);

	buf_printf(out, "  %-9s %-28s %8s %10s %6s %8s %9s %9s %9s\n", "operation", "", "per step", "ms a step", "time",
	           "GB/s", "int8Gop/s", "bf16Gop/s", "f32 Gop/s");
	for (int i = 0; i < n; i++)
		print_cost(row[i]->op, row[i]->what, (double)row[i]->calls / r->steps, row[i], r, out);
	print_cost("the rest", "engine and sampling", 1, &rest, r, out);
	buf_printf(
		out,
		"  %.0f steps; threads were waited for %.0f times in each, which takes at least %.1f us a time, %.1f%% of a step\n\n",
		r->steps, r->joins / r->steps, 1e6 * r->ceilings.join,
		100 * r->joins * r->ceilings.join * 1e9 / (double)r->cost_ns);
}

static void put_number(struct buf *b, const char *name, double v)
{
	buf_printf(b, ",\"%s\":", name);
	json_put_double(b, v);
}

static void put_profile(const struct bench_row *r, struct buf *b)
{
	const struct op_cost *row[PROFILE_ROWS];
	int n = by_time(&r->cost, row);

	buf_puts(b, ",\"profile\":{\"seconds\":");
	json_put_double(b, (double)r->cost_ns / 1e9);
	buf_puts(b, ",\"operations\":[");
	for (int i = 0; i < n; i++) {
		buf_printf(b, "%s{\"operation\":", i ? "," : "");
		json_put_cstr(b, row[i]->op);
		buf_puts(b, ",\"what\":");
		json_put_cstr(b, row[i]->what);
		put_number(b, "calls", (double)row[i]->calls);
		put_number(b, "seconds", (double)row[i]->ns / 1e9);
		put_number(b, "bytes", row[i]->bytes);
		put_number(b, "int8_operations", row[i]->int_ops);
		put_number(b, "bf16_operations", row[i]->bf16_ops);
		put_number(b, "f32_operations", row[i]->float_ops);
		buf_putc(b, '}');
	}
	buf_puts(b, "]}");
}

void bench_print_json(const struct session *s, bool profile, const struct bench_row *r, struct buf *b)
{
	const char *by, *name_moved;
	double median = bench_median(r), least = bench_floor(r, &by), from, to;
	struct buf kv;
	char name[48];

	bench_name(r, name, sizeof name);
	buf_puts(b, "{\"test\":");
	json_put_cstr(b, name);
	buf_puts(b, ",\"model\":");
	json_put_cstr(b, s->store->name);
	buf_printf(
		b,
		",\"level\":\"%s\",\"threads\":%d,\"arithmetic\":\"%s\",\"step_tokens\":%d,\"prompt\":%d,\"output\":%d,"
		"\"depth\":%d,\"batch\":%d",
		s->be->level, s->be->threads, arith_name(s), s->step_rows, r->n_prompt, r->n_gen, r->depth, r->batch);
	buf_init(&kv);
	kv_describe(&kv, s->kv, &s->model->shape);
	buf_puts(b, ",\"kv\":");
	json_put_str(b, kv.p, kv.n);
	buf_fini(&kv);
	put_number(b, "tokens_per_second", median);
	buf_puts(b, ",\"runs\":[");
	for (int i = 0; i < r->n_run; i++) {
		buf_puts(b, i ? "," : "");
		json_put_double(b, r->rate[i]);
	}
	buf_putc(b, ']');
	put_number(b, "floor_tokens_per_second", least > 0 ? least : (double)NAN);
	put_number(b, "floor_fraction", least > 0 ? median / least : (double)NAN);
	put_number(b, "ceiling_moved", bench_ceiling_moved(r, &name_moved, &from, &to));
	if (r->joules > 0)
		put_number(b, "joules_per_token", r->joules / r->all_tokens);
	if (bench_floor_vectors(r) > 0)
		put_number(b, "floor_fraction_vectors", median / bench_floor_vectors(r));
	if (r->experts.slots) {
		const struct bench_experts *x = &r->experts;

		put_number(b, "expert_slots", x->slots);
		put_number(b, "experts", x->of);
		put_number(b, "expert_hits", x->used > 0 ? x->hits / x->used : (double)NAN);
		put_number(b, "expert_bytes_per_token", x->bytes / r->all_tokens);
		put_number(b, "disk_bytes_per_second", x->disk);
		put_number(b, "disk_share", x->disk > 0 ? x->bytes / x->seconds / x->disk : (double)NAN);
		put_number(b, "disk_floor_tokens_per_second", x->bytes > 0 ? disk_floor(r) : (double)NAN);
	}
	if (r->tables.tables) {
		put_number(b, "table_bytes_per_token", r->tables.bytes / r->all_tokens);
		put_number(b, "table_wait_share", r->tables.wait / r->tables.seconds);
	}
	if (r->drafts) {
		put_number(b, "speedup", median / r->plain);
		put_number(b, "tokens_per_step", r->all_tokens / r->all_steps / r->batch);
		put_number(b, "drafted_tokens", r->drafted);
		put_number(b, "accepted_draft_tokens", r->accepted);
	}
	buf_printf(b, ",\"bound_by\":\"%s\"", by);
	put_number(b, "steps", r->steps);
	put_number(b, "joins", r->joins);
	buf_puts(b, ",\"ceilings\":{\"read_bytes_per_second\":");
	json_put_double(b, r->ceilings.read);
	put_number(b, "int8_operations_per_second", r->ceilings.int8);
	if (r->ceilings.int8_vectors > 0)
		put_number(b, "int8_vector_operations_per_second", r->ceilings.int8_vectors);
	if (r->ceilings.bf16 > 0)
		put_number(b, "bf16_operations_per_second", r->ceilings.bf16);
	put_number(b, "f32_operations_per_second", r->ceilings.f32);
	put_number(b, "seconds_per_join", r->ceilings.join);
	buf_putc(b, '}');
	if (profile)
		put_profile(r, b);
	buf_putc(b, '}');
}
