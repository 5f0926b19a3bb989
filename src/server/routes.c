/* routes.c - the list of what is answered.  To add an endpoint: a file with a
 * struct endpoint, its name in routes.h, a line here. */
#include "server/routes.h"

#include <string.h>

#include "server/inside.h"

const struct route routes[] = {
	{ .path = "/", .open = true, .endpoint = &page_endpoint },
	{ .path = "/page/", .prefix = true, .open = true, .endpoint = &page_endpoint },
	{ .path = "/v1/chat/completions", .post = true, .endpoint = &chat_endpoint },
	{ .path = "/v1/completions", .post = true, .endpoint = &completions_endpoint },
	{ .path = "/v1/embeddings", .post = true, .endpoint = &embed_endpoint },
	{ .path = "/v1/responses", .post = true, .endpoint = &responses_endpoint },
	{ .path = "/v1/responses/input_tokens", .post = true, .endpoint = &input_tokens_endpoint },
	{ .path = "/v1/responses/compact", .post = true, .endpoint = &response_compact_endpoint },
	{ .path = "/v1/responses/", .prefix = true, .post = true, .endpoint = &response_cancel_endpoint },
	{ .path = "/v1/responses/", .prefix = true, .endpoint = &response_get_endpoint },
	{ .path = "/v1/responses/", .prefix = true, .del = true, .endpoint = &response_drop_endpoint },
	{ .path = "/v1/messages", .post = true, .shape = SHAPE_ANTHROPIC, .endpoint = &messages_endpoint },
	{ .path = "/v1/messages/count_tokens",
	  .post = true,
	  .shape = SHAPE_ANTHROPIC,
	  .endpoint = &count_tokens_endpoint },
	/* for base URLs without /v1 */
	{ .path = "/chat/completions", .post = true, .endpoint = &chat_endpoint },
	{ .path = "/completions", .post = true, .endpoint = &completions_endpoint },
	{ .path = "/responses", .post = true, .endpoint = &responses_endpoint },
	{ .path = "/messages", .post = true, .shape = SHAPE_ANTHROPIC, .endpoint = &messages_endpoint },
	{ .path = "/messages/count_tokens",
	  .post = true,
	  .shape = SHAPE_ANTHROPIC,
	  .endpoint = &count_tokens_endpoint },
	{ .path = "/embeddings", .post = true, .endpoint = &embed_endpoint },
	{ .path = "/models", .endpoint = &models_endpoint },
	/* llama-server's */
	{ .path = "/completion", .post = true, .endpoint = &native_endpoint },
	{ .path = "/infill", .post = true, .endpoint = &infill_endpoint },
	{ .path = "/slots", .exact = true, .endpoint = &slots_endpoint },
	{ .path = "/lora-adapters", .exact = true, .endpoint = &adapters_endpoint },
	{ .path = "/lora-adapters", .exact = true, .post = true, .endpoint = &adapters_set_endpoint },
	/* ollama's */
	{ .path = "/api/chat", .post = true, .shape = SHAPE_OLLAMA, .endpoint = &ollama_chat_endpoint },
	{ .path = "/api/generate", .post = true, .shape = SHAPE_OLLAMA, .endpoint = &ollama_generate_endpoint },
	{ .path = "/api/tags", .shape = SHAPE_OLLAMA, .endpoint = &ollama_tags_endpoint },
	{ .path = "/api/ps", .shape = SHAPE_OLLAMA, .endpoint = &ollama_tags_endpoint },
	{ .path = "/api/show", .post = true, .shape = SHAPE_OLLAMA, .endpoint = &ollama_show_endpoint },
	{ .path = "/api/version", .open = true, .shape = SHAPE_OLLAMA, .endpoint = &ollama_version_endpoint },
	{ .path = "/api/embed", .post = true, .shape = SHAPE_OLLAMA, .endpoint = &ollama_embed_endpoint },
	{ .path = "/api/embeddings", .post = true, .shape = SHAPE_OLLAMA, .endpoint = &ollama_embeddings_endpoint },
	{ .path = "/api/pull", .post = true, .shape = SHAPE_OLLAMA, .endpoint = &ollama_unsupported_endpoint },
	{ .path = "/tokenize", .post = true, .endpoint = &tokenize_endpoint },
	{ .path = "/detokenize", .post = true, .endpoint = &detokenize_endpoint },
	{ .path = "/apply-template", .post = true, .endpoint = &template_endpoint },
	{ .path = "/props", .endpoint = &props_endpoint },
	{ .path = "/tokenizer_info", .endpoint = &tokenizer_info_endpoint },
	{ .path = "/v1/models", .endpoint = &models_endpoint },
	{ .path = "/v1/models/", .prefix = true, .endpoint = &model_endpoint },
	{ .path = "/v1/cache", .exact = true, .endpoint = &cache_tree_endpoint },
	{ .path = "/v1/cache/nodes/", .exact = true, .prefix = true, .endpoint = &cache_node_endpoint },
	{ .path = "/v1/cache/explain", .exact = true, .post = true, .endpoint = &cache_explain_endpoint },
	{ .path = "/v1/cache/warm", .exact = true, .post = true, .endpoint = &cache_warm_endpoint },
	{ .path = "/v1/cache/pin", .exact = true, .post = true, .endpoint = &cache_pin_endpoint },
	{ .path = "/v1/cache/unpin", .exact = true, .post = true, .endpoint = &cache_unpin_endpoint },
	{ .path = "/v1/cache/drop", .exact = true, .post = true, .endpoint = &cache_drop_endpoint },
	{ .path = "/v1/requests", .exact = true, .endpoint = &requests_list_endpoint },
	{ .path = "/v1/requests/", .exact = true, .prefix = true, .del = true, .endpoint = &requests_endpoint },
	{ .path = "/health", .open = true, .endpoint = &health_endpoint },
	{ .path = "/metrics", .exact = true, .endpoint = &metrics_endpoint },
	{ .path = NULL },
};

const char *served_alias(const char **at, size_t *n)
{
	const char *own = *at;

	if (!own || !*own)
		return NULL;
	*n = strcspn(own, ",");
	*at = own + *n + (own[*n] == ',');
	return own;
}

static bool is_name(const char *name, size_t n, const char *own)
{
	return n == strlen(own) && !memcmp(name, own, n);
}

int model_known(const struct served *d, const char *name, size_t n, struct problem *p)
{
	size_t len;
	bool known = d->any_model || adapter_named(d, name, n) >= 0 || is_name(name, n, d->name) ||
	             is_name(name, n, "default");

	for (const char *at = d->aliases, *own; (own = served_alias(&at, &len)) && !known;)
		known = n == len && !memcmp(name, own, n);
	return known ? 0 :
	               problem_set(
			       p, 404, "model_not_found", "model",
			       "the model \"%.*s\" is not served here; \"%s\" is (--alias and --any-model give it other names)",
			       (int)(n < 200 ? n : 200), name, d->name);
}
