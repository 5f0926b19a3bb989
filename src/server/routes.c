/* routes.c - the list of what is answered.  To add an endpoint: a file with a
 * struct api, its name in routes.h, a line here. */
#include "server/routes.h"

#include <string.h>

#include "server/inside.h"

const struct route routes[] = {
	{ .path = "/", .open = true, .api = &page_api },
	{ .path = "/page/", .prefix = true, .open = true, .api = &page_api },
	{ .path = "/v1/chat/completions", .post = true, .api = &chat_api },
	{ .path = "/v1/completions", .post = true, .api = &completions_api },
	{ .path = "/v1/embeddings", .post = true, .api = &embeddings_api },
	{ .path = "/v1/responses", .post = true, .api = &responses_api },
	{ .path = "/v1/responses/input_tokens", .post = true, .api = &input_tokens_api },
	{ .path = "/v1/responses/compact", .post = true, .api = &response_compact_api },
	{ .path = "/v1/responses/", .prefix = true, .post = true, .api = &response_cancel_api },
	{ .path = "/v1/responses/", .prefix = true, .api = &response_get_api },
	{ .path = "/v1/responses/", .prefix = true, .del = true, .api = &response_drop_api },
	{ .path = "/v1/messages", .post = true, .shape = SHAPE_ANTHROPIC, .api = &messages_api },
	{ .path = "/v1/messages/count_tokens", .post = true, .shape = SHAPE_ANTHROPIC, .api = &count_tokens_api },
	/* for base URLs without /v1 */
	{ .path = "/chat/completions", .post = true, .api = &chat_api },
	{ .path = "/completions", .post = true, .api = &completions_api },
	{ .path = "/responses", .post = true, .api = &responses_api },
	{ .path = "/messages", .post = true, .shape = SHAPE_ANTHROPIC, .api = &messages_api },
	{ .path = "/messages/count_tokens", .post = true, .shape = SHAPE_ANTHROPIC, .api = &count_tokens_api },
	{ .path = "/embeddings", .post = true, .api = &embeddings_api },
	{ .path = "/models", .api = &models_api },
	/* llama-server's */
	{ .path = "/completion", .post = true, .api = &native_api },
	{ .path = "/infill", .post = true, .api = &infill_api },
	{ .path = "/slots", .exact = true, .api = &slots_api },
	{ .path = "/lora-adapters", .exact = true, .api = &adapters_api },
	{ .path = "/lora-adapters", .exact = true, .post = true, .api = &adapters_set_api },
	/* ollama's */
	{ .path = "/api/chat", .post = true, .shape = SHAPE_OLLAMA, .api = &ollama_chat_api },
	{ .path = "/api/generate", .post = true, .shape = SHAPE_OLLAMA, .api = &ollama_generate_api },
	{ .path = "/api/tags", .shape = SHAPE_OLLAMA, .api = &ollama_tags_api },
	{ .path = "/api/ps", .shape = SHAPE_OLLAMA, .api = &ollama_tags_api },
	{ .path = "/api/show", .post = true, .shape = SHAPE_OLLAMA, .api = &ollama_show_api },
	{ .path = "/api/version", .open = true, .shape = SHAPE_OLLAMA, .api = &ollama_version_api },
	{ .path = "/api/embed", .post = true, .shape = SHAPE_OLLAMA, .api = &ollama_embed_api },
	{ .path = "/api/embeddings", .post = true, .shape = SHAPE_OLLAMA, .api = &ollama_embeddings_api },
	{ .path = "/api/pull", .post = true, .shape = SHAPE_OLLAMA, .api = &ollama_unsupported_api },
	{ .path = "/tokenize", .post = true, .api = &tokenize_api },
	{ .path = "/detokenize", .post = true, .api = &detokenize_api },
	{ .path = "/apply-template", .post = true, .api = &template_api },
	{ .path = "/props", .api = &props_api },
	{ .path = "/tokenizer_info", .api = &tokenizer_info_api },
	{ .path = "/v1/models", .api = &models_api },
	{ .path = "/v1/models/", .prefix = true, .api = &model_api },
	{ .path = "/v1/cache", .exact = true, .api = &cache_tree_api },
	{ .path = "/v1/cache/nodes/", .exact = true, .prefix = true, .api = &cache_node_api },
	{ .path = "/v1/cache/explain", .exact = true, .post = true, .api = &cache_explain_api },
	{ .path = "/v1/cache/warm", .exact = true, .post = true, .api = &cache_warm_api },
	{ .path = "/v1/cache/pin", .exact = true, .post = true, .api = &cache_pin_api },
	{ .path = "/v1/cache/unpin", .exact = true, .post = true, .api = &cache_unpin_api },
	{ .path = "/v1/cache/drop", .exact = true, .post = true, .api = &cache_drop_api },
	{ .path = "/v1/requests", .exact = true, .api = &requests_list_api },
	{ .path = "/v1/requests/", .exact = true, .prefix = true, .del = true, .api = &requests_api },
	{ .path = "/health", .open = true, .api = &health_api },
	{ .path = "/metrics", .exact = true, .api = &metrics_api },
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
