/* response_tell.c - see response_tell.h. */
#include "server/responses/response_tell.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/chat/chat.h"
#include "server/chat/messages.h"
#include "server/chat/generate.h"
#include "server/inside.h"
#include "server/responses/response_store.h"

/* ---- items ---- */

/* Kinds of items of an answer. */
enum item { ITEM_REASONING, ITEM_MESSAGE, ITEM_CALL, ITEM_CUSTOM, ITEM_SEARCH };
static const char *const prefix_of[] = { "rs", "msg", "fc", "ctc", "tsc" };

static const struct tool_kind *kind_of(const struct generation *g, const struct choice *c, int i)
{
	return tool_kinds_find(&g->tools.kinds, c->split.text.p + c->split.piece[i].at, c->split.piece[i].n);
}

static enum item item_of(const struct generation *g, const struct choice *c, int i)
{
	const struct tool_kind *k;

	switch (c->split.piece[i].kind) {
	case PIECE_THINKING: return ITEM_REASONING;
	case PIECE_CALL: return (k = kind_of(g, c, i)) ? ITEM_CALL + (enum item)k->form : ITEM_CALL;
	default: return ITEM_MESSAGE;
	}
}

/* Logprobs are of the tokens of messages: an array for each of the first of them, and
 * what the next event of a stream is to tell. */
enum { MESSAGES_MAX = 3, NEXT = MESSAGES_MAX };

static int message_of(const struct choice *c, int piece)
{
	int k = -1;

	for (int i = 0; i <= piece && i < c->split.n_piece; i++)
		k += c->split.piece[i].kind == PIECE_CONTENT;
	return k;
}

void response_token(struct generation *g, struct choice *c, const struct event *ev)
{
	bool thought = c->split.state == SPLIT_THINK;
	int calls = c->split.n_call, k;

	chat_token(g, c, ev);
	if (!g->params.logprobs || ev->kind != EV_TOKEN || thought || c->split.n_call != calls ||
	    c->split.state == SPLIT_CALL)
		return;
	k = message_of(c, c->split.n_piece - 1);
	if (k < 0 || k >= MESSAGES_MAX)
		return;
	chat_logprob(g, ev, &c->logprobs[k]);
	chat_logprob(g, ev, &c->logprobs[NEXT]);
}

/* ,"logprobs":[...] of the message that piece i is. */
static void put_logprobs(const struct choice *c, int i, struct buf *out)
{
	int k = message_of(c, i);

	buf_puts(out, ",\"logprobs\":[");
	if (k >= 0 && k < MESSAGES_MAX)
		buf_put(out, c->logprobs[k].p, c->logprobs[k].n);
	buf_putc(out, ']');
}

static void put_input(const struct choice *c, int i, struct buf *out)
{
	const struct piece *p = &c->split.piece[i];
	struct buf input;

	buf_init(&input);
	if (i + 1 < c->split.n_piece)
		tool_get_input(c->split.text.p + p[1].at, p[1].n, &input);
	json_put_str(out, input.p, input.n);
	buf_fini(&input);
}

/* A search's arguments are an object, not its text; if it broke off, the text that came. */
static void put_search(const struct choice *c, int i, const char *id, bool open, struct buf *out)
{
	const struct piece *p = &c->split.piece[i];
	struct json *j = NULL;

	buf_printf(out,
	           "\"type\":\"tool_search_call\",\"execution\":\"client\",\"call_id\":\"call_%s\",\"arguments\":", id);
	if (open)
		buf_puts(out, "{}");
	else if ((j = json_parse(c->split.text.p + p[1].at, p[1].n, 200, NULL)))
		json_put(out, j);
	else
		json_put_str(out, c->split.text.p + p[1].at, p[1].n);
	json_free(j);
}

/* A call's members, from its id on. */
static void put_call(const struct generation *g, const struct choice *c, int i, const char *id, bool open,
                     struct buf *out)
{
	const struct tool_kind *k = kind_of(g, c, i);
	const struct piece *p = &c->split.piece[i];
	const char *text = c->split.text.p;
	bool custom = k && k->form == TOOL_CUSTOM;

	if (k && k->form == TOOL_SEARCH) {
		put_search(c, i, id, open, out);
		return;
	}
	buf_printf(out,
	           "\"type\":\"%s\",\"call_id\":\"call_%s\",\"name\":", custom ? "custom_tool_call" : "function_call",
	           id);
	if (k)
		json_put_cstr(out, k->own);
	else
		json_put_str(out, text + p->at, p->n);
	if (k && k->space) {
		buf_puts(out, ",\"namespace\":");
		json_put_cstr(out, k->space);
	}
	buf_puts(out, custom ? ",\"input\":" : ",\"arguments\":");
	if (open)
		buf_puts(out, "\"\"");
	else if (custom)
		put_input(c, i, out);
	else
		json_put_str(out, text + p[1].at, p[1].n);
}

/* Item k of the answer, which piece i began.  open: as it is announced, still empty. */
static void put_item(const struct generation *g, struct choice *c, int i, int k, const char *status, bool open,
                     struct buf *out)
{
	const struct responses *own = g->own;
	const struct piece *p = &c->split.piece[i];
	const char *text = c->split.text.p, *id = chat_call_id(c, k);
	enum item item = item_of(g, c, i);

	buf_printf(out, "{\"id\":\"%s_%s\",", prefix_of[item], id);
	switch (item) {
	case ITEM_REASONING:
		buf_printf(out, "\"type\":\"reasoning\",%s",
		           own->summary ? "\"summary\":[" : "\"summary\":[],\"content\":[");
		if (!open) {
			buf_printf(out, "{\"type\":\"%s_text\",\"text\":", own->summary ? "summary" : "reasoning");
			json_put_str(out, text + p->at, p->n);
			buf_putc(out, '}');
		}
		break;
	case ITEM_CALL:
	case ITEM_CUSTOM:
	case ITEM_SEARCH: put_call(g, c, i, id, open, out); break;
	case ITEM_MESSAGE:
		buf_puts(out, "\"type\":\"message\",\"role\":\"assistant\",\"content\":[");
		if (!open) {
			buf_puts(out, "{\"type\":\"output_text\",\"annotations\":[]");
			put_logprobs(c, i, out);
			buf_puts(out, ",\"text\":");
			json_put_str(out, text + p->at, p->n);
			buf_putc(out, '}');
		}
		break;
	}
	buf_printf(out, "%s,\"status\":\"%s\"}", item >= ITEM_CALL ? "" : "]", status);
}

/* Whether an item begins with that piece: the arguments of a call, and its end, are in the call's. */
static bool begins_item(const struct piece *p)
{
	return p->kind != PIECE_ARGUMENTS && p->kind != PIECE_CALL_END;
}

/* Only the last item of an answer can have been cut short. */
static const char *status_of(const struct choice *c, int i)
{
	const struct split *s = &c->split;

	for (i++; i < s->n_piece; i++)
		if (begins_item(&s->piece[i]))
			return "completed";
	return c->done && c->finish == FINISH_LENGTH ? "incomplete" : "completed";
}

void response_put_items(const struct generation *g, struct choice *c, struct buf *out)
{
	int k = 0;

	for (int i = 0; i < c->split.n_piece; i++) {
		if (!begins_item(&c->split.piece[i]))
			continue;
		if (k)
			buf_putc(out, ',');
		put_item(g, c, i, k++, status_of(c, i), false, out);
	}
}

/* The text so far of an answer that is being written, up to its first call. */
static void put_so_far(const struct generation *g, struct choice *c, struct buf *out)
{
	const struct split *s = &c->split;

	for (int i = 0; i < s->n_piece && s->piece[i].kind != PIECE_CALL; i++) {
		if (i)
			buf_putc(out, ',');
		put_item(g, c, i, i, i + 1 < s->n_piece ? "completed" : "in_progress", false, out);
	}
}

/* why: of one that failed, or NULL.  so_far: with the text of an answer that has not ended.  Events before the
 * last one have none of it, for clients add up the pieces of the output. */
static void put_response(struct generation *g, const char *status, const struct problem *why, bool so_far,
                         struct buf *out)
{
	struct choice *c = g->choice ? &g->choice[0] : NULL;
	struct usage u = generation_usage(g);
	bool over = c && c->done && !why;

	buf_printf(out, "{\"id\":\"resp_%s\",\"object\":\"response\",\"created_at\":%lld,\"status\":\"%s\",\"model\":",
	           g->x->id, (long long)g->created, status);
	json_put_cstr(out, model_shown(g));
	buf_puts(out, ",\"error\":");
	if (why) {
		buf_puts(out, "{\"code\":\"server_error\",\"message\":");
		json_put_cstr(out, why->message);
		buf_putc(out, '}');
	} else {
		buf_puts(out, "null");
	}
	buf_puts(out, ",\"incomplete_details\":");
	buf_puts(out, over && c->finish == FINISH_LENGTH ? "{\"reason\":\"max_output_tokens\"}" : "null");
	buf_puts(out, ",\"output\":");
	buf_putc(out, '[');
	if (over)
		response_put_items(g, c, out);
	else if (c && so_far)
		put_so_far(g, c, out);
	buf_putc(out, ']');
	buf_put(out, g->echo.p, g->echo.n);
	/* The types have it once there is one, and null never. */
	if (over) {
		buf_printf(
			out,
			",\"usage\":{\"input_tokens\":%d,\"input_tokens_details\":{\"cached_tokens\":%d,\"cache_write_tokens\":0},\"output_tokens\":%d,"
			"\"output_tokens_details\":{\"reasoning_tokens\":%d},\"total_tokens\":%d",
			u.prompt, u.cached, u.output, u.thought, u.prompt + u.output);
		put_cache_report(g, out);
		buf_putc(out, '}');
	}
	if (over && c->split.malformed)
		buf_puts(out, ",\"malformed_tool_call\":true");
	buf_putc(out, '}');
}

void response_put(struct generation *g, const char *status, const struct problem *why, struct buf *out)
{
	put_response(g, status, why, !why, out);
}

/* ---- what is kept ---- */

/* The answer as the message that a later request goes on from. */
static void put_answer(struct choice *c, struct buf *out)
{
	struct json *calls = json_new_array(), *message;
	const char *text = c->split.text.p;
	struct buf part[2], id;
	int k = 0;

	buf_init(&part[0]);
	buf_init(&part[1]);
	buf_init(&id);
	for (int i = 0; i < c->split.n_piece; i++) {
		const struct piece *p = &c->split.piece[i];

		if (p->kind == PIECE_CALL) {
			struct json *arguments = json_parse(text + p[1].at, p[1].n, 0, NULL), *name;

			if (json_kind(arguments) != JSON_OBJECT) {
				json_free(arguments);
				arguments = json_new_str(text + p[1].at, p[1].n);
			}
			buf_reset(&id);
			buf_printf(&id, "call_%s", chat_call_id(c, k));
			name = json_new_str(id.p, id.n);
			json_add(calls, call_new(name, text + p->at, p->n, arguments));
			json_free(name);
		} else if (begins_item(p)) {
			buf_put(&part[p->kind == PIECE_CONTENT], text + p->at, p->n);
		}
		k += begins_item(p);
	}
	message = message_assistant(&part[1], &part[0], calls);
	buf_putc(out, ',');
	json_put(out, message);
	json_free(message);
	buf_fini(&part[0]);
	buf_fini(&part[1]);
	buf_fini(&id);
}

static void put_last(struct generation *g, struct buf *out)
{
	struct responses *own = g->own;
	struct response_store *store = &g->x->srv->responses;
	struct choice *c = &g->choice[0];
	struct buf object, none;
	size_t at = out->n;
	char id[48];

	response_put(g, c->finish == FINISH_LENGTH ? "incomplete" : "completed", NULL, out);
	buf_init(&object);
	buf_init(&none);
	if (*own->conversation) {
		buf_put(&object, own->items.p, own->items.n);
		if (object.n && c->split.n_piece)
			buf_putc(&object, ',');
		response_put_items(g, c, &object);
		response_store_append(store, own->conversation, g->x->from.key, KEPT_ITEMS, &object);
		buf_reset(&object);
	}
	if (g->params.store) {
		buf_put(&object, out->p + at, out->n - at);
		put_answer(c, &own->history);
	}
	if (g->params.store && own->end) {
		/* It is stored when it is over, with its events. */
		own->end->whole = true;
		own->end->object = object;
		buf_init(&object);
	} else if (g->params.store) {
		snprintf(id, sizeof id, "resp_%s", g->x->id);
		response_store_put(
			store, id, g->x->from.key,
			(const struct buf *[N_KEPT]){ &object, &own->history, &own->items, &own->tools, &none });
	}
	buf_fini(&object);
}

/* ---- the stream ---- */

static void begin(struct generation *g, const char *type, struct buf *out)
{
	event_named(out, type);
	buf_printf(out, "{\"type\":\"%s\",\"sequence_number\":%d", type, ((struct responses *)g->own)->sequence++);
}

static void put_end(struct buf *out)
{
	buf_putc(out, '}');
	event_end(out);
}

static void response_event(struct generation *g, const char *type, const char *status, struct buf *out)
{
	begin(g, type, out);
	buf_puts(out, ",\"response\":");
	put_response(g, status, NULL, false, out);
	put_end(out);
}

void response_first(struct generation *g, struct choice *c, struct buf *out)
{
	const struct responses *own = g->own;
	bool waits = own->behind != NULL; /* others have no event between the two */

	(void)c;
	response_event(g, "response.created", waits ? "queued" : "in_progress", out);
	response_event(g, waits ? "response.queued" : "response.in_progress", waits ? "queued" : "in_progress", out);
}

/* An event about the open item, up to its own members. */
static void about_item(struct generation *g, struct choice *c, const char *type, struct buf *out)
{
	const struct responses *own = g->own;
	int k = c->block.n - 1;

	begin(g, type, out);
	buf_printf(out, ",\"output_index\":%d", k);
	if (strncmp(type, "response.output_item.", 21)) {
		enum item item = item_of(g, c, c->block.piece);

		buf_printf(out, ",\"item_id\":\"%s_%s\"", prefix_of[item], chat_call_id(c, k));
		if (item == ITEM_REASONING && own->summary)
			buf_puts(out, ",\"summary_index\":0");
		else if (item <= ITEM_MESSAGE)
			buf_puts(out, ",\"content_index\":0");
	}
}

static void item_event(struct generation *g, struct choice *c, bool added, struct buf *out)
{
	about_item(g, c, added ? "response.output_item.added" : "response.output_item.done", out);
	buf_puts(out, ",\"item\":");
	put_item(g, c, c->block.piece, c->block.n - 1, added ? "in_progress" : status_of(c, c->block.piece), added,
	         out);
	put_end(out);
}

/* The events of an item of text, by its kind. */
struct voice {
	const char *part, *delta, *done, *part_added, *part_done;
};

static const struct voice *voice_of(const struct generation *g, const struct choice *c)
{
	static const struct voice voices[] = {
		{ "{\"type\":\"output_text\",\"annotations\":[]", "response.output_text.delta",
		  "response.output_text.done", "response.content_part.added", "response.content_part.done" },
		{ "{\"type\":\"reasoning_text\"", "response.reasoning_text.delta", "response.reasoning_text.done",
		  "response.content_part.added", "response.content_part.done" },
		{ "{\"type\":\"summary_text\"", "response.reasoning_summary_text.delta",
		  "response.reasoning_summary_text.done", "response.reasoning_summary_part.added",
		  "response.reasoning_summary_part.done" },
	};
	const struct responses *own = g->own;

	if (item_of(g, c, c->block.piece) == ITEM_MESSAGE)
		return &voices[0];
	return &voices[own->summary ? 2 : 1];
}

static void part_event(struct generation *g, struct choice *c, bool added, const char *text, size_t n, struct buf *out)
{
	const struct voice *voice = voice_of(g, c);

	about_item(g, c, added ? voice->part_added : voice->part_done, out);
	buf_printf(out, ",\"part\":%s", voice->part);
	if (item_of(g, c, c->block.piece) == ITEM_MESSAGE && n)
		put_logprobs(c, c->block.piece, out);
	else if (item_of(g, c, c->block.piece) == ITEM_MESSAGE)
		buf_puts(out, ",\"logprobs\":[]");
	buf_puts(out, ",\"text\":");
	json_put_str(out, text, n);
	buf_putc(out, '}');
	put_end(out);
}

/* The input of a custom tool comes as one delta, because it is inside the arguments that the model wrote. */
static void custom_ends(struct generation *g, struct choice *c, struct buf *out)
{
	static const struct {
		const char *type, *member;
	} events[] = {
		{ "response.custom_tool_call_input.delta", "delta" },
		{ "response.custom_tool_call_input.done", "input" },
	};

	for (int i = 0; i < 2; i++) {
		about_item(g, c, events[i].type, out);
		buf_printf(out, ",\"%s\":", events[i].member);
		put_input(c, c->block.piece, out);
		put_end(out);
	}
}

static void call_ends(struct generation *g, struct choice *c, struct buf *out)
{
	const struct piece *p = &c->split.piece[c->block.piece];
	const struct tool_kind *k = kind_of(g, c, c->block.piece);
	const char *text = c->split.text.p;

	about_item(g, c, "response.function_call_arguments.done", out);
	buf_puts(out, ",\"name\":");
	if (k)
		json_put_cstr(out, k->own);
	else
		json_put_str(out, text + p->at, p->n);
	buf_puts(out, ",\"arguments\":");
	json_put_str(out, text + p[1].at, p[1].n);
	put_end(out);
}

static void text_ends(struct generation *g, struct choice *c, struct buf *out)
{
	const struct piece *p = &c->split.piece[c->block.piece];
	const char *text = c->split.text.p;

	about_item(g, c, voice_of(g, c)->done, out);
	buf_puts(out, ",\"text\":");
	json_put_str(out, text + p->at, p->n);
	if (p->kind == PIECE_CONTENT)
		put_logprobs(c, c->block.piece, out);
	put_end(out);
	part_event(g, c, false, text + p->at, p->n, out);
}

static void item_ends(struct generation *g, struct choice *c, struct buf *out)
{
	if (!c->block.open)
		return; /* there may be no piece at all */
	switch (item_of(g, c, c->block.piece)) {
	case ITEM_CALL: call_ends(g, c, out); break;
	case ITEM_CUSTOM: custom_ends(g, c, out); break;
	case ITEM_SEARCH: break;
	default: text_ends(g, c, out); break;
	}
	item_event(g, c, false, out);
	c->block.open = BLOCK_NONE;
}

static void item_begins(struct generation *g, struct choice *c, struct buf *out)
{
	item_ends(g, c, out);
	c->block.piece = c->told.n;
	c->block.n++;
	c->block.open = BLOCK_TEXT;
	item_event(g, c, true, out);
	if (c->split.piece[c->block.piece].kind != PIECE_CALL)
		part_event(g, c, true, "", 0, out);
}

void response_delta(struct generation *g, struct choice *c, struct buf *out)
{
	struct responses *own = g->own;
	struct piece p;
	bool begins;

	if (own->behind && !own->told_begun) {
		own->told_begun = true;
		response_event(g, "response.in_progress", "in_progress", out);
	}
	while (chat_next(c, &p, &begins)) {
		bool call;

		if (begins && begins_item(&p))
			item_begins(g, c, out);
		call = c->split.piece[c->block.piece].kind == PIECE_CALL;
		if (p.kind == PIECE_CALL || p.kind == PIECE_CALL_END ||
		    (call && item_of(g, c, c->block.piece) != ITEM_CALL))
			continue;
		about_item(g, c, call ? "response.function_call_arguments.delta" : voice_of(g, c)->delta, out);
		buf_puts(out, ",\"delta\":");
		json_put_str(out, c->split.text.p + p.at, p.n);
		if (p.kind == PIECE_CONTENT) {
			buf_printf(out, ",\"logprobs\":[%s]", c->logprobs[NEXT].n ? c->logprobs[NEXT].p : "");
			buf_reset(&c->logprobs[NEXT]);
		}
		put_end(out);
	}
}

void response_last(struct generation *g, struct choice *c, struct buf *out)
{
	item_ends(g, c, out);
}

void response_close(struct generation *g, struct buf *out)
{
	begin(g, g->choice[0].finish == FINISH_LENGTH ? "response.incomplete" : "response.completed", out);
	buf_puts(out, ",\"response\":");
	put_last(g, out);
	put_end(out);
}

void response_error(struct generation *g, const struct problem *p, struct buf *out)
{
	const struct responses *own = g->own;
	bool cancelled = own->behind && p->status == STATUS_CANCELLED;

	begin(g, "response.failed", out); /* the API has no event for one that was cancelled */
	buf_puts(out, ",\"response\":");
	response_put(g, cancelled ? "cancelled" : "failed", cancelled ? NULL : p, out);
	put_end(out);
}

void response_progress(struct generation *g, struct choice *c, const struct event *ev, struct buf *out)
{
	begin(g, "response.prompt_progress", out); /* not of the API, and only for those who ask */
	buf_puts(out, ",\"prompt_progress\":");
	put_progress(g, c, ev, out);
	put_end(out);
}

void response_whole(struct generation *g, struct buf *out)
{
	put_last(g, out);
	buf_putc(out, '\n');
}
