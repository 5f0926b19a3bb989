/* routes.h - what this server answers: one line in routes.c for each. */
#ifndef SERVER_ROUTES_H
#define SERVER_ROUTES_H

#include "server/http/exchange.h"

extern const struct api tokenize_api, detokenize_api, template_api, props_api, tokenizer_info_api;
extern const struct api ollama_chat_api, ollama_generate_api, ollama_tags_api, ollama_show_api, ollama_version_api,
	ollama_unsupported_api;
extern const struct api embeddings_api, ollama_embed_api, ollama_embeddings_api;
extern const struct api native_api, infill_api, slots_api, input_tokens_api, response_cancel_api, response_compact_api;
extern const struct api responses_api, response_get_api, response_drop_api;
extern const struct api messages_api, count_tokens_api;
extern const struct api chat_api, completions_api, models_api, model_api, health_api, page_api, metrics_api,
	requests_api, requests_list_api, cache_node_api, cache_tree_api, cache_explain_api, cache_warm_api,
	cache_pin_api, cache_unpin_api, cache_drop_api, adapters_api, adapters_set_api;

struct served;
struct family;
extern const struct family chat_family, completions_family, messages_family, responses_family;
extern const struct family embed_family, ollama_embed_family, ollama_embeddings_family;
extern const struct family ollama_chat_family, ollama_generate_family, ollama_show_family, native_family, infill_family;

/* Walks through served.aliases, which *at is at first: the next name, of *n bytes, or NULL. */
const char *served_alias(const char **at, size_t *n);
/* 0, or a 404 in *p that names both: is name one of the served model's, or "default"? */
int model_known(const struct served *d, const char *name, size_t n, struct problem *p);

#endif
