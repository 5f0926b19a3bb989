/* api_metrics.c - GET /metrics: what the server and its engine count, in Prometheus' text format 0.0.4.
 *
 * Our own names come first, then those of vLLM for what has the same meaning there, since gateways scrape them. */
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/cpu.h"
#include "base/json.h"
#include "base/memory.h"
#include "server/chat/generate.h"
#include "server/chat/turns.h"
#include "server/inside.h"
#include "server/kv_events.h"
#include "server/routes.h"

/* Names of the causes in labels. */
static const char *const cause_labels[CAUSES] = { "disconnect", "delete", "stall", "deadline", "stop" };

/* Names are written whole; labels is "" or `a="x"`. */
struct page {
	struct buf *b;
	const char *prefix, *labels;
};

static void describe(const struct page *p, const char *name, const char *type, const char *help)
{
	buf_printf(p->b, "# HELP %s%s %s\n# TYPE %s%s %s\n", p->prefix, name, help, p->prefix, name, type);
}

/* One sample; more: further labels, or "". */
static void sample(const struct page *p, const char *name, const char *more, double v)
{
	const char *comma = *p->labels && *more ? "," : "";
	bool braces = *p->labels || *more;

	buf_printf(p->b, "%s%s%s%s%s%s%s ", p->prefix, name, braces ? "{" : "", p->labels, comma, more,
	           braces ? "}" : "");
	json_put_double(p->b, v);
	buf_putc(p->b, '\n');
}

static void counter(const struct page *p, const char *name, const char *help, int64_t v)
{
	describe(p, name, "counter", help);
	sample(p, name, "", (double)v);
}

static void gauge(const struct page *p, const char *name, const char *help, double v)
{
	describe(p, name, "gauge", help);
	sample(p, name, "", v);
}

static void labelled(const struct page *p, const char *name, const char *label, const char *value, int64_t v)
{
	struct buf more;

	buf_init(&more);
	buf_printf(&more, "%s=\"%s\"", label, value);
	sample(p, name, more.p, (double)v);
	buf_fini(&more);
}

static void histogram(const struct page *p, const char *name, const char *help, const struct histogram *h)
{
	struct buf bucket, le;
	int64_t total = 0;

	describe(p, name, "histogram", help);
	buf_init(&bucket);
	buf_printf(&bucket, "%s_bucket", name);
	buf_init(&le);
	for (int i = 0; i <= h->n; i++) {
		total += h->count[i];
		buf_reset(&le);
		buf_puts(&le, "le=\"");
		if (i < h->n)
			json_put_double(&le, h->bound[i]);
		else
			buf_puts(&le, "+Inf");
		buf_putc(&le, '"');
		sample(p, bucket.p, le.p, (double)total);
	}
	buf_reset(&bucket);
	buf_printf(&bucket, "%s_sum", name);
	sample(p, bucket.p, "", h->sum);
	buf_reset(&bucket);
	buf_printf(&bucket, "%s_count", name);
	sample(p, bucket.p, "", (double)total);
	buf_fini(&bucket);
	buf_fini(&le);
}

/* ---- what has two names ---- */

/* One value under our name and under vLLM's: where both mean the same, gateways find it. */
struct shared {
	const char *own, *vllm; /* own NULL: none of ours has this meaning alone */
	const char *help;
	enum { GAUGE, COUNTER, DISTRIBUTION } type;
	double value;
	const struct histogram *h; /* DISTRIBUTION: that, not value */
};

static struct histogram rows_of_steps(const struct engine_stats *e)
{
	static const double bounds[STEP_SIZES - 1] = { 1,   2,   4,    8,    16,   32,   64,   128,
		                                       256, 512, 1024, 2048, 4096, 8192, 16384 };
	struct histogram h = { .bound = bounds, .n = STEP_SIZES - 1, .sum = (double)e->step_rows_sum };

	memcpy(h.count, e->step_rows, sizeof e->step_rows);
	return h;
}

static void put_shared(const struct page *p, bool vllm, const struct metrics *m, const struct engine_stats *e)
{
	struct histogram steps = rows_of_steps(e);
	double pages_used = e->kv.pages ? (double)e->kv.pages_used / e->kv.pages : 0;
	const struct shared all[] = {
		{ "requests_running", "num_requests_running", "Requests that hold a sequence.", GAUGE, e->running,
		  NULL },
		{ "requests_waiting", "num_requests_waiting", "Requests in the engine's queue.", GAUGE, e->waiting,
		  NULL },
		{ NULL, "kv_cache_usage_perc", "Share of the pages of keys and values in use, 0 to 1.", GAUGE,
		  pages_used, NULL },
		{ "requests_preempted_total", "num_preemptions_total", "Times a running request went back to waiting.",
		  COUNTER, (double)e->preempted, NULL },
		{ "prompt_tokens_total", "prompt_tokens_total", "Tokens of the prompts of admitted requests.", COUNTER,
		  (double)e->prompt_tokens, NULL },
		{ "output_tokens_total", "generation_tokens_total", "Tokens generated.", COUNTER,
		  (double)e->output_tokens, NULL },
		{ NULL, "prefix_cache_queries_total", "As prompt_tokens_total.", COUNTER, (double)e->prompt_tokens,
		  NULL },
		{ "cached_tokens_total", "prefix_cache_hits_total",
		  "Prompt tokens that a kept prefix made unnecessary to compute.", COUNTER, (double)e->cached_tokens,
		  NULL },
		{ "time_to_first_token_seconds", "time_to_first_token_seconds",
		  "From a complete request to its first token.", DISTRIBUTION, 0, &m->first_token },
		{ "inter_token_seconds", "inter_token_latency_seconds", "Between the tokens of an answer.",
		  DISTRIBUTION, 0, &m->next_token },
		{ "queue_seconds", "request_queue_time_seconds", "From the engine's inbox to the first step.",
		  DISTRIBUTION, 0, &m->queue },
		{ "prefill_seconds", "request_prefill_time_seconds", "From the first step to the first token.",
		  DISTRIBUTION, 0, &m->prefill },
		{ "decode_seconds", "request_decode_time_seconds", "From the first token to the end.", DISTRIBUTION, 0,
		  &m->decode },
		{ NULL, "request_inference_time_seconds", "From the first step to the end.", DISTRIBUTION, 0,
		  &m->inference },
		{ "step_tokens", "iteration_tokens_total", "Tokens that a step computed.", DISTRIBUTION, 0, &steps },
		{ "request_seconds", "e2e_request_latency_seconds", "From a complete request to the end of its answer.",
		  DISTRIBUTION, 0, &m->whole },
		{ "request_prompt_tokens", "request_prompt_tokens", "Tokens of a prompt.", DISTRIBUTION, 0,
		  &m->prompt_tokens },
		{ "request_output_tokens", "request_generation_tokens", "Tokens of an answer.", DISTRIBUTION, 0,
		  &m->output_tokens },
		/* names that vLLM had before, which production-stack reads */
		{ NULL, "gpu_cache_usage_perc", "As kv_cache_usage_perc.", GAUGE, pages_used, NULL },
		{ NULL, "gpu_prefix_cache_queries_total", "As prefix_cache_queries_total.", COUNTER,
		  (double)e->prompt_tokens, NULL },
		{ NULL, "gpu_prefix_cache_hits_total", "As prefix_cache_hits_total.", COUNTER, (double)e->cached_tokens,
		  NULL },
		{ NULL, "gpu_prefix_cache_hit_rate", "Hits by queries, 0 to 1.", GAUGE,
		  e->prompt_tokens ? (double)e->cached_tokens / (double)e->prompt_tokens : 0, NULL },
		{ NULL, "request_max_num_generation_tokens", "As request_generation_tokens.", DISTRIBUTION, 0,
		  &m->output_tokens },
		{ NULL, "time_per_output_token_seconds", "As inter_token_latency_seconds.", DISTRIBUTION, 0,
		  &m->next_token },
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		const struct shared *s = &all[i];
		const char *name = vllm ? s->vllm : s->own;

		if (!name)
			continue;
		if (s->h)
			histogram(p, name, s->help, s->h);
		else if (s->type == COUNTER)
			counter(p, name, s->help, (int64_t)s->value);
		else
			gauge(p, name, s->help, s->value);
	}
}

static void put_drafts(const struct page *p, const struct engine_stats *e)
{
	if (!e->drafter[0].name)
		return;
	describe(p, "drafted_tokens_total", "counter", "Tokens guessed ahead and computed, by drafter.");
	for (int i = 0; i < DRAFTERS_MAX && e->drafter[i].name; i++)
		labelled(p, "drafted_tokens_total", "drafter", e->drafter[i].name, e->drafter[i].drafted);
	describe(p, "draft_accepted_tokens_total", "counter", "Drafted tokens that became part of an answer.");
	for (int i = 0; i < DRAFTERS_MAX && e->drafter[i].name; i++)
		labelled(p, "draft_accepted_tokens_total", "drafter", e->drafter[i].name, e->drafter[i].accepted);
	describe(p, "draft_rounds_total", "counter", "Runs of such tokens.");
	for (int i = 0; i < DRAFTERS_MAX && e->drafter[i].name; i++)
		labelled(p, "draft_rounds_total", "drafter", e->drafter[i].name, e->drafter[i].rounds);
}

/* Experts that stay on disk; nothing where all are in memory. */
static void put_experts(const struct page *p, const struct stream_stats *x)
{
	if (!x->slots)
		return;
	gauge(p, "expert_slots", "Experts there is memory for.", x->slots);
	gauge(p, "expert_slots_used", "Experts in memory.", x->slots_used);
	gauge(p, "experts", "Experts of all layers.", x->experts);
	gauge(p, "expert_bytes", "Memory of those slots.", (double)x->slots * (double)x->slot_bytes);
	counter(p, "experts_used_total", "Experts that steps used, once for each layer and step.", x->used);
	counter(p, "expert_hits_total", "Experts that steps used and that were in memory, or on the way.", x->hits);
	counter(p, "expert_reads_total", "Experts read.", x->reads);
	counter(p, "expert_read_bytes_total", "Bytes read.", x->read_bytes);
	counter(p, "experts_ahead_total", "Experts read ahead, before it was known that they are used.", x->ahead);
	counter(p, "experts_ahead_used_total", "Experts read ahead that were then used.", x->ahead_used);
	counter(p, "experts_failed_total", "Experts that could not be read.", x->failed);
	counter(p, "expert_wait_seconds_total", "Time that steps waited for the disk.", x->wait_ns / 1000000000);
}

/* Tables that stay on disk; nothing where all are in memory. */
static void put_tables(const struct page *p, const struct row_stats *x)
{
	if (!x->tables)
		return;
	gauge(p, "tables", "Tables on disk, of which steps look up rows.", x->tables);
	gauge(p, "table_bytes", "Bytes of those tables, which are not in memory.", (double)x->table_bytes);
	gauge(p, "table_buffer_bytes", "Memory that their rows are read into.", (double)x->buffer_bytes);
	counter(p, "table_rows_total", "Rows looked up, once for each token and table.", x->rows);
	counter(p, "table_reads_total", "Reads that brought them; one may bring several.", x->reads);
	counter(p, "table_read_bytes_total", "Bytes read.", x->read_bytes);
	counter(p, "table_rows_failed_total", "Rows that could not be read.", x->failed);
	counter(p, "table_wait_seconds_total", "Time that steps waited for the disk.", x->wait_ns / 1000000000);
}

/* The Redis server of kept prefixes; nothing without one. */
static void put_redis(const struct page *p, const struct redis_stats *d)
{
	if (!d->on)
		return;
	gauge(p, "redis_up", "1: Redis answers.", d->up);
	counter(p, "redis_written_total", "Pieces of kept prefixes written to Redis.", d->written);
	counter(p, "redis_written_bytes_total", "Bytes written.", (int64_t)d->written_bytes);
	counter(p, "redis_read_total", "Pieces read and found right.", d->read);
	counter(p, "redis_read_bytes_total", "Bytes of theirs.", (int64_t)d->read_bytes);
	counter(p, "redis_found_total", "Pieces found there that were in no file.", d->found);
	counter(p, "redis_dropped_total", "Not written: no room in the queue, or Redis failed.", d->dropped);
	counter(p, "redis_failed_total", "Times that Redis failed or was late, and was left alone.", d->failed);
	counter(p, "redis_damaged_total", "Values found wrong, and removed.", d->damaged);
}

/* Kept prefixes on disk; nothing without a folder for them. */
static void put_disk(const struct page *p, const struct disk_stats *d)
{
	if (!d->on)
		return;
	gauge(p, "disk_bytes", "Bytes of the files in the folder of kept prefixes, other models' included.",
	      (double)d->bytes);
	gauge(p, "disk_bytes_max", "Budget of the folder.", (double)d->bytes_max);
	gauge(p, "disk_pages", "Pages of this model's in it.", (double)d->pages);
	gauge(p, "disk_snapshots", "Snapshots of this model's in it.", (double)d->snaps);
	gauge(p, "disk_pending", "Kept states that are not copied whole yet.", d->pending);
	gauge(p, "disk_queue_bytes", "Bytes copied and not yet written.", (double)d->queue_bytes);
	counter(p, "disk_written_total", "Pieces written.", d->written);
	counter(p, "disk_written_bytes_total", "Bytes written.", (int64_t)d->written_bytes);
	counter(p, "disk_read_total", "Pieces read and found right.", d->read);
	counter(p, "disk_read_bytes_total", "Bytes of theirs.", (int64_t)d->read_bytes);
	counter(p, "disk_dropped_total", "Not written: no room in the queue or the budget.", d->dropped);
	counter(p, "disk_failed_total", "Not written: the disk refused, or is left alone after it did.", d->failed);
	counter(p, "disk_damaged_total", "Found wrong or unreadable, and removed.", d->damaged);
	counter(p, "disk_vanished_total", "Gone when they were wanted.", d->vanished);
	counter(p, "disk_found_total", "Pieces found that other programs wrote.", d->found);
	counter(p, "disk_evicted_total", "Files that were evicted.", d->evicted);
	counter(p, "disk_loads_total", "Prompts that waited for a prefix from disk.", d->loads);
	counter(p, "disk_given_up_total", "Waits that were given up: damaged, gone or too slow.", d->given_up);
	put_redis(p, &d->redis);
}

static void put_engine(const struct page *p, const struct engine_stats *e)
{
	static const char *const limit[N_LIMIT] = { "", "count", "seconds", "share", "deadline" };

	counter(p, "requests_total", "Requests given to the engine.", e->requests);
	describe(p, "requests_finished_total", "counter", "Requests that ended, by reason.");
	labelled(p, "requests_finished_total", "reason", "stop", e->finished[FINISH_STOP]);
	labelled(p, "requests_finished_total", "reason", "length", e->finished[FINISH_LENGTH]);
	labelled(p, "requests_finished_total", "reason", "cancel", e->finished[FINISH_CANCEL]);
	labelled(p, "requests_finished_total", "reason", "error", e->finished[FINISH_ERROR]);
	describe(p, "requests_refused_total", "counter", "Requests that the engine did not take, by limit.");
	for (int i = LIMIT_NONE + 1; i < N_LIMIT; i++)
		labelled(p, "requests_refused_total", "limit", limit[i], e->refused[i]);
	counter(p, "requests_late_total", "Requests that their deadline ended.", e->late);
	counter(p, "requests_yielded_total", "Preemptions for another client.", e->yielded);
	counter(p, "requests_resumed_total", "Times one came back with nothing to compute again.", e->resumed);
	gauge(p, "waiting_tokens", "Tokens of the prompts that wait.", (double)e->waiting_tokens);
	gauge(p, "prefill_tokens_per_second", "Measured rate of computing prompts; 0: not yet known.", e->prefill_rate);
	gauge(p, "decode_step_seconds", "A step that only decodes, lately; 0: not yet known.",
	      (double)e->decode_step_ns / 1e9);
	gauge(p, "states", "Sequences, and their states, that there is room for.", e->slots);
	gauge(p, "states_used", "States in use.", e->running);
	gauge(p, "parked_requests", "Preempted requests kept whole outside the pages.", e->parked.n);
	gauge(p, "parked_bytes", "Bytes of theirs.", (double)e->parked.bytes);
	gauge(p, "parked_bytes_max", "Budget of those.", (double)e->parked.bytes_max);
	counter(p, "steps_total", "Steps of the engine.", e->steps);
	put_drafts(p, e);
	gauge(p, "kv_pages", "Pages of keys and values there are.", e->kv.pages);
	gauge(p, "kv_pages_used", "Pages of keys and values in use, by sequences and kept prefixes.", e->kv.pages_used);
	gauge(p, "prefix_bytes", "Bytes of kept prefixes.", (double)e->prefix.bytes);
	gauge(p, "prefix_bytes_max", "Budget of kept prefixes.", (double)e->prefix.bytes_max);
	gauge(p, "prefix_entries", "Kept prefixes.", e->prefix.entries);
	counter(p, "prefix_hits_total", "Requests that resumed from one.", e->prefix.hits);
	counter(p, "prefix_evicted_total", "Kept prefixes that were evicted.", e->prefix.evicted);
	counter(p, "prefix_verified_total", "Hits that were computed again and compared (--verify-cache).",
	        e->prefix.verified);
	counter(p, "prefix_wrong_total", "Hits that were compared, differed and were dropped.", e->prefix.wrong);
	put_disk(p, &e->disk);
	put_experts(p, &e->experts);
	put_tables(p, &e->tables);
	describe(p, "prefix_lookups_total", "counter", "Requests, by why they were not resumed further on.");
	for (int i = 0; i < PREFIX_REASONS; i++)
		labelled(p, "prefix_lookups_total", "reason", prefix_reason_name(i), e->prefix.reason[i]);
}

static void put_cancelled(const struct page *p, const struct metrics *m)
{
	describe(p, "clients_left_total", "counter", "Clients that left before their answer was complete, by stage.");
	for (int i = 0; i < LEFT_STAGES; i++)
		labelled(p, "clients_left_total", "stage", stage_names[i], m->cancelled[CAUSE_LEFT][i]);
	describe(p, "requests_cancelled_total", "counter", "Requests cancelled, by cause and stage.");
	for (int c = 0; c < CAUSES; c++) {
		for (int i = 0; i < LEFT_STAGES; i++) {
			struct buf more;

			buf_init(&more);
			buf_printf(&more, "cause=\"%s\",stage=\"%s\"", cause_labels[c], stage_names[i]);
			sample(p, "requests_cancelled_total", more.p, (double)m->cancelled[c][i]);
			buf_fini(&more);
		}
	}
}

static void put_server(const struct page *p, const struct server *s)
{
	static const char *const class[] = { NULL, NULL, "2xx", NULL, "4xx", "5xx" };
	const struct metrics *m = &s->metrics;
	struct turns_stats turns;

	gauge(p, "connections", "Open connections.", s->conns.n);
	counter(p, "connections_refused_total", "Connections beyond the limit.", m->refused_connections);
	gauge(p, "loop_longest_seconds", "Longest turn so far of the loop that serves all connections.",
	      (double)s->clock.longest.wall / 1e9);
	gauge(p, "loop_longest_cpu_seconds",
	      "Longest turn in time of its processor: others that ran meanwhile do not count.",
	      (double)s->clock.longest.cpu / 1e9);
	describe(p, "http_replies_total", "counter", "Replies by class of status.");
	for (int i = 0; i < 6; i++)
		if (class[i])
			labelled(p, "http_replies_total", "status", class[i], m -> replies[i]);
	put_cancelled(p, m);
	counter(p, "clients_stalled_total", "Clients given up because they did not read.", m->stalled);
	counter(p, "streams_continued_total", "Streams that went on from the last event that their client had.",
	        m->continued);
	counter(p, "request_faults_total", "Requests that a fault of the server's ended; the log has more.", m->faults);
	counter(p, "request_timeouts_total", "Requests that did not arrive in time.", m->timeouts);
	turns_stats(s->turns, &turns);
	gauge(p, "turns", "Answers that are remembered as their tokens.", turns.n);
	gauge(p, "turn_bytes", "Bytes of those.", (double)turns.bytes);
	gauge(p, "turn_bytes_max", "Budget of those.", (double)turns.bytes_max);
	counter(p, "turns_evicted_total", "Remembered answers that were evicted.", turns.evicted);
}

static void put_grammars(const struct page *p, struct grammar_store *store)
{
	struct grammar_store_stats g;

	grammar_store_stats(store, &g);
	gauge(p, "grammars", "Compiled tools and forms that are kept.", g.n);
	gauge(p, "grammar_bytes", "Bytes of their tables.", (double)g.bytes);
	counter(p, "grammar_hits_total", "Requests whose tools or form were found there.", g.hits);
	counter(p, "grammar_misses_total", "Requests whose tools or form were compiled.", g.misses);
}

static void put_workers(const struct page *p, const struct workers_stats *w)
{
	gauge(p, "prep_running", "Requests being parsed, templated and tokenised.", w->working);
	gauge(p, "prep_waiting", "Requests that wait for it.", w->waiting);
	gauge(p, "prep_seconds", "How long the oldest of those has been at it.", (double)w->oldest_ns / 1e9);
	counter(p, "prep_refused_total", "Requests that were refused because too many waited.", w->refused);
}

static void put_request_success(const struct page *p, const struct engine_stats *e)
{
	static const char *const reason[] = {
		[FINISH_STOP] = "stop",
		[FINISH_LENGTH] = "length",
		[FINISH_CANCEL] = "abort",
		[FINISH_ERROR] = "error",
	};

	describe(p, "request_success_total", "counter", "Requests that ended, by reason.");
	for (size_t i = 0; i < sizeof(reason) / sizeof(reason[0]); i++)
		labelled(p, "request_success_total", "finished_reason", reason[i], e->finished[i]);
}

/* ---- what gateways ask of vLLM ---- */

/* loaded: the model is. */
static void put_sleep_state(const struct page *p, bool loaded)
{
	describe(p, "engine_sleep_state", "gauge",
	         "1 for the state that the model is in; weights and pages are given back together.");
	labelled(p, "engine_sleep_state", "sleep_state", "awake", loaded);
	labelled(p, "engine_sleep_state", "sleep_state", "weights_offloaded", 0);
	labelled(p, "engine_sleep_state", "sleep_state", "discard_all", !loaded);
}

/* Names of the adapters of a model that have a request which runs (or waits), with commas between. */
static void put_adapters(struct buf *b, const struct server *s, const struct served *d, bool running)
{
	bool first = true;

	for (int a = 0; a < d->n_adapter; a++) {
		bool found = false;

		for (size_t i = 0; i < s->exchanges.n && !found; i++) {
			const struct generation *g = generation_running(s->exchanges.v[i]);

			if (!g || g->served != d)
				continue;
			for (int k = 0; k < g->adapters.n && !found; k++)
				for (int c = 0; c < g->n_choice && g->adapters.of[k] == d->adapter[a].of; c++)
					found |= !g->choice[c].done && g->choice[c].started == running;
		}
		if (found) {
			buf_printf(b, "%s%s", first ? "" : ",", d->adapter[a].name);
			first = false;
		}
	}
}

/* Labels say all; the value of the adapters' is the time. */
static void put_infos(const struct page *p, const struct server *s, const struct served *d,
                      const struct engine_stats *e)
{
	struct buf more, names;

	buf_init(&more);
	buf_init(&names);
	if (e->kv.page_rows) {
		describe(p, "cache_config_info", "gauge",
		         "Pages of keys and values: positions of one, how many there are.");
		buf_printf(&more, "block_size=\"%d\",num_gpu_blocks=\"%d\"", e->kv.page_rows, e->kv.pages);
		sample(p, "cache_config_info", more.p, 1);
	}
	describe(p, "lora_requests_info", "gauge", "Adapters that can be used at once, and those of requests.");
	buf_reset(&more);
	buf_printf(&more, "max_lora=\"%d\"", d->n_adapter);
	for (int running = 1; running >= 0; running--) {
		buf_reset(&names);
		put_adapters(&names, s, d, running);
		buf_printf(&more, ",%s_lora_adapters=", running ? "running" : "waiting");
		json_put_str(&more, names.p, names.n);
	}
	sample(p, "lora_requests_info", more.p, (double)time(NULL));
	buf_fini(&names);
	buf_fini(&more);
}

static void put_events(const struct page *p, struct kv_events *events)
{
	struct kv_events_stats k;

	if (!events)
		return;
	kv_events_stats(events, &k);
	counter(p, "kv_events_total", "Batches of kv-events that were sent.", k.sent);
	gauge(p, "kv_events_waiting", "Batches that wait to be sent.", (double)k.waiting);
	counter(p, "kv_events_dropped_total", "Batches that were dropped; everything was told anew.", k.dropped);
	counter(p, "kv_blocks_stored_total", "Blocks that were announced.", k.stored);
	counter(p, "kv_blocks_removed_total", "Blocks that were withdrawn.", k.removed);
}

/* What is counted of every model. */
struct per_model {
	const struct page *page;
	const char *name;
	double (*value)(const struct known_model *m);
};

static void put_one(void *arg, const struct known_model *m)
{
	const struct per_model *of = arg;
	struct buf label;

	if (!m->source.open)
		return;
	buf_init(&label);
	buf_puts(&label, "model=");
	json_put_cstr(&label, m->about.name);
	sample(of->page, of->name, label.p, of->value(m));
	buf_fini(&label);
}

static double is_loaded(const struct known_model *m)
{
	return m->phase == KNOWN_LOADED;
}

static double bytes_of(const struct known_model *m)
{
	return m->phase == KNOWN_ON_DISK ? 0 : (double)m->bytes;
}

static double requests_of(const struct known_model *m)
{
	return m->refs;
}

static double waiting_for(const struct known_model *m)
{
	return m->waiting;
}

static double loads_of(const struct known_model *m)
{
	return (double)m->loads;
}

/* Only a server with several models tells this. */
static void put_models(const struct page *p, struct server *s)
{
	static const struct {
		const char *name, *type, *help;
		double (*value)(const struct known_model *m);
	} all[] = {
		{ "model_loaded", "gauge", "Whether the model is loaded.", is_loaded },
		{ "model_bytes", "gauge", "Bytes of the budget that the model has.", bytes_of },
		{ "model_requests", "gauge", "Requests that have the model.", requests_of },
		{ "model_requests_waiting", "gauge", "Requests that wait until it is loaded.", waiting_for },
		{ "model_loads_total", "counter", "Times that it was loaded.", loads_of },
	};

	if (!s->known.threaded)
		return;
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		struct per_model of = { p, all[i].name, all[i].value };

		describe(p, all[i].name, all[i].type, all[i].help);
		known_each(s, put_one, &of);
	}
}

/* Metrics of the process, under the names that Prometheus' client libraries give them. */
static void put_process(struct buf *b, const struct server *s)
{
	const struct page p = { b, "process_", "" };
	size_t resident = memory_resident();
	struct rusage used;

	if (!getrusage(RUSAGE_SELF, &used)) {
		describe(&p, "cpu_seconds_total", "counter", "Processor time of the process, of user and system.");
		sample(&p, "cpu_seconds_total", "",
		       (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
		               (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6);
	}
	if (resident)
		gauge(&p, "resident_memory_bytes", "Resident memory of the process.", (double)resident);
	gauge(&p, "start_time_seconds", "When the process began, in seconds since 1970.", (double)s->created);
}

/* m: the model whose engine is told of; NULL: it is not loaded. */
static void put_page(struct buf *b, struct server *s, struct known_model *m, const struct engine_stats *e,
                     const struct workers_stats *w)
{
	struct page own = { b, "weft_", "" }, vllm = { b, "vllm:", "" };
	struct buf model;

	buf_init(&model);
	buf_puts(&model, "model=");
	json_put_cstr(&model, m ? m->about.name : ""); /* the same escapes as a label's */
	buf_printf(&model, ",quantization=\"%s\"", m && m->about.is.quant ? m->about.is.quant : "");
	describe(&own, "model_info", "gauge",
	         "The model that is served, and the number format of most of its weights.");
	sample(&own, "model_info", model.p, 1);
	describe(&own, "build_info", "gauge",
	         "The program: its version and commit, and the instructions that it uses.");
	buf_reset(&model);
	buf_printf(&model, "version=\"%s\",commit=\"%s\",level=\"%s\"", s->opts.version, s->opts.commit,
	           cpu_level_name(cpu_detect()));
	sample(&own, "build_info", model.p, 1);
	put_process(b, s);
	put_shared(&own, false, &s->metrics, e);
	put_engine(&own, e);
	put_server(&own, s);
	put_events(&own, s->opts.kv_events);
	put_workers(&own, w);
	if (m)
		put_grammars(&own, &m->grammars);
	put_models(&own, s);
	buf_reset(&model);
	buf_puts(&model, "model_name=");
	json_put_cstr(&model, m ? m->about.name : "");
	vllm.labels = model.p;
	put_shared(&vllm, true, &s->metrics, e);
	put_request_success(&vllm, e);
	put_sleep_state(&vllm, m != NULL);
	vllm.labels = ""; /* these two have labels of their own alone */
	if (m)
		put_infos(&vllm, s, &m->served, e);
	buf_fini(&model);
}

static void ready(struct exchange *x)
{
	struct server *s = x->srv;
	struct engine_stats e = { 0 };
	struct workers_stats w;
	struct problem p;
	struct buf b;

	if (known_ask(x, &p) && p.status != 503) {
		exchange_refuse(x, &p);
		return;
	}
	if (x->model)
		engine_stats(x->model->served.engine, &e);
	workers_stats(s, &w);
	buf_init(&b);
	put_page(&b, s, x->model, &e, &w);
	exchange_reply(x, 200, "text/plain; version=0.0.4; charset=utf-8", b.p, b.n);
	buf_fini(&b);
}

const struct endpoint metrics_endpoint = { .ready = ready };
