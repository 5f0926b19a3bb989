/* option_table.c - the options; see option_table.h. */
#include <limits.h>
#include <string.h>

#include "cli/options/option_table.h"
#include "cli/options/several_options.h"
#include "server/server.h"

#define AT(field) offsetof(struct options, field)
enum { NONE = 0 }; /* no "was set" flag: offset 0 is the model's */

static const char group_model[] = "Model and engine", group_answer[] = "Answers", group_server[] = "Server",
		  group_this[] = "This command", group_all[] = "General";
const char *const option_groups[] = { group_this, group_answer, group_server, group_model, group_all, NULL };

const struct option option_table[] = {
	{ CMD_COMMON | CMD_RUN, "prompt", "p", NULL, K_TEXT, AT(run.prompt), NONE, 0, 0, "TEXT", NULL, group_this,
	  "answer TEXT, print the answer on standard output and end" },
	{ CMD_COMMON | CMD_RUN, "system-prompt", "sys", "system", K_TEXT, AT(run.system), NONE, 0, 0, "TEXT", NULL,
	  group_this, "system message before the conversation" },
	{ CMD_COMMON | CMD_RUN, "url", NULL, NULL, K_TEXT, AT(remote.url), NONE, 0, 0, "URL", NULL, group_this,
	  "ask a server with the OpenAI API, as http://127.0.0.1:8080 or unix:/path; MODEL is its name for the model" },
	{ CMD_COMMON | CMD_RUN, "api-key", NULL, NULL, K_TEXT, AT(remote.api_key), NONE, 0, 0, "KEY", NULL, group_this,
	  "with --url: the server's key; else the variable WEFT_API_KEY" },
	{ CMD_RUN, "show-thinking", NULL, NULL, K_FLAG, AT(run.show_thinking), NONE, 0, 0, NULL, NULL, group_this,
	  "with -p or a pipe: print the thinking as well as the answer" },
	{ CMD_LOGITS, "ids", NULL, NULL, K_TEXT, AT(logits.ids), NONE, 0, 0, "FILE", NULL, group_this,
	  "JSON array of token ids" },
	{ CMD_PPL, "text", "f", NULL, K_TEXT, AT(ppl.text_file), NONE, 0, 0, "FILE", NULL, group_this,
	  "text to read; a form feed (byte 12) starts a new text" },
	{ CMD_PPL, "ids", NULL, NULL, K_TEXT, AT(ppl.ids), NONE, 0, 0, "FILE", NULL, group_this,
	  "token ids to read instead: a JSON array, or an array of arrays, one for each text" },
	{ CMD_PPL, "against", NULL, NULL, K_AGAINST, AT(ppl.against), NONE, 0, 0, "bf16|exact|none", "bf16", group_this,
	  "what to compare with: the 16-bit cache with the same --arith (bf16), the reference arithmetic with a float32 cache (exact), or nothing, for perplexity alone (none)" },
	{ CMD_PPL, "against-model", NULL, NULL, K_TEXT, AT(ppl.against_model), NONE, 0, 0, "MODEL", NULL, group_this,
	  "compare with another model of the same vocabulary instead, under the same settings" },
	{ CMD_COMMON | CMD_QUANTIZE, "type", NULL, NULL, K_TEXT, AT(quantize.type), NONE, 0, 0, "TYPE", NULL,
	  group_this,
	  "a GGUF type or mix (Q8_0, Q4_0, Q4_K_M, Q5_K_M, Q6_K, IQ4_XS ...), affine2 to affine8 (affine4g32: groups of 32) or mxfp4" },
	{ CMD_COMMON | CMD_QUANTIZE, "out", "o", NULL, K_TEXT, AT(quantize.out), NONE, 0, 0, "PATH", NULL, group_this,
	  "GGUF file or folder to write" },
	{ CMD_COMMON | CMD_QUANTIZE, "mmproj-out", NULL, NULL, K_TEXT, AT(quantize.mmproj_out), NONE, 0, 0, "FILE",
	  NULL, group_this, "also write the image tower of a folder as a projector file" },
	{ CMD_COMMON | CMD_QUANTIZE, "imatrix", NULL, NULL, K_TEXT, AT(quantize.imatrix), NONE, 0, 0, "FILE", NULL,
	  group_this, "importance of each input, in either form that llama.cpp's imatrix writes" },
	{ CMD_COMMON | CMD_QUANTIZE, "calibrate", NULL, NULL, K_TEXT, AT(quantize.calibrate), NONE, 0, 0, "FILE", NULL,
	  group_this, "run this text first, and weight each input by how much the text uses it" },
	{ CMD_COMMON | CMD_QUANTIZE, "text", "f", NULL, K_TEXT, AT(quantize.text_file), NONE, 0, 0, "FILE", NULL,
	  group_this, "then run this text through both models and print how far their predictions differ" },
	{ CMD_COMMON | CMD_PACK, "prompt", "p", NULL, K_TEXT, AT(pack.prompt), NONE, 0, 0, "FILE", NULL, group_this,
	  "system prompt, or a request as JSON: a body of /v1/chat/completions, or one as in --recorded" },
	{ CMD_COMMON | CMD_PACK, "recorded", NULL, NULL, K_TEXT, AT(pack.recorded), NONE, 0, 0, "DIR", NULL, group_this,
	  "folder of requests of one agent, files .json with path and body; the pack is what all prompts begin with" },
	{ CMD_COMMON | CMD_PACK | CMD_CACHE, "out", "o", NULL, K_TEXT, AT(pack.out), NONE, 0, 0, "FILE", NULL,
	  group_this, "pack to write" },
	{ CMD_COMMON | CMD_CHAT | CMD_PACK, "pull", NULL, NULL, K_FLAG, AT(pull.wanted), NONE, 0, 0, NULL, NULL,
	  group_model, "fetch the model from the Hugging Face hub first if it is not on disk (see weft pull)" },
	{ CMD_COMMON | CMD_AGENTS, "url", NULL, NULL, K_TEXT, AT(remote.url), NONE, 0, 0, "URL", NULL, group_this,
	  "the server that the agent is to ask.  Default: http://127.0.0.1:8080" },
	{ CMD_COMMON | CMD_AGENTS, "api-key", NULL, NULL, K_TEXT, AT(remote.api_key), NONE, 0, 0, "KEY", NULL,
	  group_this, "the server's key; else the variable WEFT_API_KEY" },
	{ CMD_COMMON | CMD_AGENTS, "write", NULL, NULL, K_FLAG, AT(write), NONE, 0, 0, NULL, NULL, group_this,
	  "write the file where the agent looks for it; one that is there becomes FILE.bak" },
	{ CMD_PULL, "connections", NULL, NULL, K_INT, AT(pull.connections), NONE, 1, 16, "N", "4", group_this,
	  "number of requests at once" },
	{ CMD_PULL, "part-size", NULL, NULL, K_SIZE, AT(pull.part), NONE, 0, 0, "SIZE", "32M", group_this,
	  "size of one request; an interrupted fetch continues with the parts that are missing" },
	{ CMD_PULL, "all", NULL, NULL, K_FLAG, AT(pull.all), NONE, 0, 0, NULL, NULL, group_this,
	  "fetch every file of the model, not only those that weft reads" },
	{ CMD_PULL, "mmproj", NULL, NULL, K_TEXT, AT(load.mmproj), NONE, 0, 0, "none", NULL, group_this,
	  "none: fetch a GGUF model without the file of its image tower" },
	{ CMD_LIST, "json", NULL, NULL, K_FLAG, AT(list_json), NONE, 0, 0, NULL, NULL, group_this,
	  "print a JSON array" },
	{ CMD_PPL, "json", NULL, NULL, K_FLAG, AT(ppl.json), NONE, 0, 0, NULL, NULL, group_this,
	  "print one JSON object" },
	{ CMD_LOGITS, "out", "o", NULL, K_TEXT, AT(logits.out), NONE, 0, 0, "FILE", NULL, group_this,
	  "safetensors file to write: logits [n, V] float32" },
	{ CMD_LOGITS, "split", NULL, NULL, K_INTS, AT(logits.split), NONE, 1, INT_MAX, "N,N,..", NULL, group_this,
	  "sizes of the prefill chunks, used in turn" },
	{ CMD_LOGITS, "greedy", NULL, NULL, K_INT, AT(logits.greedy), NONE, 0, INT_MAX, "N", "0", group_this,
	  "then decode N tokens; adds greedy_ids [N] and step_logits [N, V], whose row 0 is the prompt's last" },
	{ CMD_LOGITS, "alongside", NULL, NULL, K_INT, AT(logits.alongside), NONE, 0, 1024, "N", "0", group_this,
	  "run N other sequences with other tokens in every step" },
	{ CMD_LOGITS, "resume-at", NULL, NULL, K_INT, AT(logits.resume_at), NONE, 0, INT_MAX, "K", "0", group_this,
	  "at position K: save the state, restore it into a new sequence and continue" },
	{ CMD_LOGITS, "warm", NULL, NULL, K_TEXT, AT(logits.warm), NONE, 0, 0, "FILE", NULL, group_this,
	  "run these ids first, then take the common prefix from the prefix cache" },
	{ CMD_INSPECT, "memory", NULL, NULL, K_FLAG, AT(inspect.memory), NONE, 0, 0, NULL, NULL, group_this,
	  "print only the memory plan for serving the model, part by part (docs/memory.md)" },
	{ CMD_LOGITS, "image", NULL, NULL, K_TEXTS, AT(logits.images), NONE, 0, 0, "FILE", NULL, group_this,
	  "image for the next run of image placeholders in the ids; a run of one is expanded" },
	{ CMD_LOGITS, "sound", NULL, NULL, K_TEXTS, AT(logits.images), NONE, 0, 0, "FILE", NULL, group_this,
	  "the same of a sound" },
	{ CMD_RUN, "image", NULL, NULL, K_TEXTS, AT(run.images), NONE, 0, 0, "FILE", NULL, group_this,
	  "image shown in the first message; may be repeated" },
	{ CMD_RUN, "sound", NULL, NULL, K_TEXTS, AT(run.images), NONE, 0, 0, "FILE", NULL, group_this,
	  "sound heard in the first message (WAV, FLAC, Ogg, MP3); may be repeated" },
	{ CMD_INSPECT, "tensors", NULL, NULL, K_FLAG, AT(inspect.tensors), NONE, 0, 0, NULL, NULL, group_this,
	  "list every tensor, and why it is ignored if it is" },
	{ CMD_INSPECT, "json", NULL, NULL, K_FLAG, AT(inspect.json), NONE, 0, 0, NULL, NULL, group_this,
	  "print one JSON object with stable member names" },
	{ CMD_TOKENIZE, "pieces", NULL, NULL, K_FLAG, AT(tokenize.pieces), NONE, 0, 0, NULL, NULL, group_this,
	  "print the text of each id next to it" },
	{ CMD_TOKENIZE, "special", NULL, NULL, K_FLAG, AT(tokenize.special), NONE, 0, 0, NULL, NULL, group_this,
	  "treat text that spells a special token as that token" },
	{ CMD_PPL, "special", NULL, NULL, K_FLAG, AT(ppl.special), NONE, 0, 0, NULL, NULL, group_this,
	  "treat text that spells a special token as that token" },
	{ CMD_TOKENIZE, "around", NULL, NULL, K_FLAG, AT(tokenize.around), NONE, 0, 0, NULL, NULL, group_this,
	  "add the tokens that the tokenizer puts around a text" },

	{ CMD_BENCH, "prompt-tokens", "p", "n-prompt", K_INTS, AT(bench.prompt), NONE, 0, INT_MAX, "N,N,..", "512",
	  group_this, "prompt lengths to measure, one row each; 0: none" },
	{ CMD_BENCH, "output-tokens", "n", "n-gen", K_INTS, AT(bench.output), NONE, 0, INT_MAX, "N,N,..", "64",
	  group_this, "numbers of tokens to decode, one row each; 0: none" },
	{ CMD_BENCH, "depth", "d", "n-depth", K_INTS, AT(bench.depth), NONE, 0, INT_MAX, "N,N,..", "0", group_this,
	  "tokens already in every sequence; each row is measured at each depth" },
	{ CMD_BENCH, "depth-filled", NULL, NULL, K_FLAG, AT(bench.fill), NONE, 0, 0, NULL, NULL, group_this,
	  "fill those tokens with random numbers instead of computing them: fast set-up, same speed" },
	{ CMD_BENCH, "batch", "b", NULL, K_INTS, AT(bench.batch), NONE, 1, 256, "N,N,..", "1", group_this,
	  "sequences that decode together; each --output-tokens row is measured for each" },
	{ CMD_BENCH, "repetitions", "r", NULL, K_INT, AT(bench.repeat), NONE, 1, 1000, "N", "5", group_this,
	  "measurements per row, after one warm-up; the median is printed" },
	{ CMD_BENCH, "profile", NULL, NULL, K_FLAG, AT(bench.profile), NONE, 0, 0, NULL, NULL, group_this,
	  "repeat each row with a timer around every operation" },
	{ CMD_BENCH, "paired", NULL, NULL, K_TEXT, AT(bench.paired), NONE, 0, 0, "PROGRAM", NULL, group_this,
	  "run another build of weft alternately with this one, -r rounds, and print the ratio of their speeds" },
	{ CMD_BENCH, "json", NULL, NULL, K_FLAG, AT(bench.json), NONE, 0, 0, NULL, NULL, group_this,
	  "print a JSON array with one object per row" },

	{ CMD_BENCH_SERVE, "requests", NULL, "num-prompts", K_INT, AT(bench_serve.requests), NONE, 1, 10000000, "N",
	  "100", group_this, "total number of requests" },
	{ CMD_BENCH_SERVE, "rate", NULL, "request-rate", K_DOUBLE, AT(bench_serve.rate), NONE, 0, 1e6, "R", "1",
	  group_this, "mean arrivals per second, as a Poisson process; 0: all at once" },
	{ CMD_BENCH_SERVE, "prompt-tokens", NULL, NULL, K_INTS, AT(bench_serve.prompt), NONE, 1, INT_MAX, "N,N,..",
	  "64,256,1024", group_this, "prompt lengths, one chosen for each request; in words of about one token each" },
	{ CMD_BENCH_SERVE, "output-tokens", NULL, NULL, K_INTS, AT(bench_serve.output), NONE, 1, INT_MAX, "N,N,..",
	  "16,64,256", group_this, "max_tokens, one chosen for each request" },
	{ CMD_BENCH_SERVE, "prefixes", NULL, NULL, K_INT, AT(bench_serve.prefixes), NONE, 0, 1 << 20, "N", "0",
	  group_this, "number of shared prefixes; each prompt starts with one of them" },
	{ CMD_BENCH_SERVE, "prefix-tokens", NULL, NULL, K_INT, AT(bench_serve.prefix_words), NONE, 1, INT_MAX, "N",
	  "512", group_this, "length of each shared prefix" },
	{ CMD_BENCH_SERVE, "abort", NULL, NULL, K_DOUBLE, AT(bench_serve.abort), NONE, 0, 1, "SHARE", "0", group_this,
	  "share of requests that disconnect before their answer is complete" },
	{ CMD_BENCH_SERVE, "completions", NULL, NULL, K_FLAG, AT(bench_serve.completions), NONE, 0, 0, NULL, NULL,
	  group_this, "use /v1/completions instead of /v1/chat/completions" },
	{ CMD_BENCH_SERVE, "ignore-eos", NULL, NULL, K_FLAG, AT(bench_serve.ignore_eos), NONE, 0, 0, NULL, NULL,
	  group_this, "run answers to max_tokens, on servers that support ignore_eos" },
	{ CMD_BENCH_SERVE, "json", NULL, NULL, K_FLAG, AT(bench_serve.json), NONE, 0, 0, NULL, NULL, group_this,
	  "print one JSON object, times in seconds" },
	{ CMD_BENCH_SERVE, "seed", "s", NULL, K_INT64, AT(bench_serve.seed), NONE, -1, 9e15, "N", "-1", group_this,
	  "random seed; the same seed sends the same requests at the same times, which a server may have cached; -1: a new one" },
	{ CMD_COMMON | CMD_BENCH_SERVE, "temp", NULL, "temperature", K_DOUBLE, AT(load.answer.temperature),
	  AT(load.answer.temperature_set), 0, 100, "T", NULL, group_this, "temperature; default: the server's" },
	{ CMD_BENCH_SERVE, "user", NULL, NULL, K_TEXT, AT(bench_serve.user), NONE, 0, 0, "NAME", NULL, group_this,
	  "value of `user`, by which a server shares its time between clients" },
	{ CMD_COMMON | CMD_BENCH_SERVE, "api-key", NULL, NULL, K_TEXT, AT(remote.api_key), NONE, 0, 0, "KEY", NULL,
	  group_this, "sent as Authorization: Bearer KEY" },
	{ CMD_BENCH_SERVE, "timeout", NULL, NULL, K_INT, AT(bench_serve.timeout), NONE, 1, 86400, "SECONDS", "600",
	  group_this, "a request fails when its connection is idle for this long" },

	{ CMD_COMMON | CMD_SERVE, "host", NULL, NULL, K_TEXT, AT(serve.host), NONE, 0, 0, "ADDRESS", "127.0.0.1",
	  group_server, "address to listen on; 0.0.0.0: all; unix:/PATH: a Unix socket" },
	{ CMD_COMMON | CMD_SERVE, "port", NULL, NULL, K_INT, AT(serve.port), NONE, 0, 65535, "N", "8080", group_server,
	  "port to listen on; 0: any free port" },
	{ CMD_SERVE, "port-file", NULL, NULL, K_TEXT, AT(serve.port_file), NONE, 0, 0, "FILE", NULL, group_server,
	  "write the port to this file once the server is ready" },
	{ CMD_COMMON | CMD_SERVE, "alias", "a", NULL, K_TEXTS, AT(alias), NONE, 0, 0, "NAME", NULL, group_server,
	  "model name in the API; several may be separated by commas or given repeatedly (default: the model's own name)" },
	{ CMD_SERVE, "models-dir", NULL, NULL, K_TEXT, AT(several.dir), NONE, 0, 0, "DIR", NULL, group_server,
	  "serve every model in this folder, each loaded when a request names it (docs/several-models.md)" },
	{ CMD_SERVE, "any-model", NULL, NULL, K_FLAG, AT(serve.any_model), NONE, 0, 0, NULL, NULL, group_server,
	  "accept any model name in requests" },
	{ CMD_COMMON | CMD_SERVE, "api-key", NULL, NULL, K_TEXT, AT(serve.api_key), NONE, 0, 0, "KEY", NULL,
	  group_server, "require this key from every client" },
	{ CMD_SERVE, "api-key-file", NULL, NULL, K_TEXT, AT(serve.api_key_file), NONE, 0, 0, "FILE", NULL, group_server,
	  "file with a line 'NAME KEY' for each client; the log shows the name, and time is shared between names" },
	{ CMD_SERVE, "cors-origin", NULL, NULL, K_TEXT, AT(serve.cors_origin), NONE, 0, 0, "ORIGIN", NULL, group_server,
	  "allow browser pages from this origin; separate several with commas; *: all" },
	{ CMD_SERVE, "image-folder", NULL, "allowed-local-media-path", K_TEXTS, AT(serve.image_folder), NONE, 0, 0,
	  "DIR", NULL, group_server, "let requests name images in this folder by file: URLs; may be repeated" },
	{ CMD_SERVE, "image-host", NULL, "allowed-media-domains", K_TEXTS, AT(serve.image_host), NONE, 0, 0, "HOST",
	  NULL, group_server,
	  "fetch images from this HOST or HOST:PORT when requests name them by URL; may be repeated" },
	{ CMD_SERVE, "strict", NULL, NULL, K_FLAG, AT(serve.strict), NONE, 0, 0, NULL, NULL, group_server,
	  "reject requests with unknown fields instead of listing them in a response header" },
	{ CMD_SERVE, "queue", NULL, NULL, K_INT, AT(load.queue), NONE, 1, 1 << 20, "N", "256", group_server,
	  "maximum number of waiting requests; further ones are rejected" },
	{ CMD_TUNE | CMD_SERVE, "queue-seconds", NULL, NULL, K_DOUBLE, AT(load.queue_seconds), NONE, 0, 1e6, "SECONDS",
	  "120", group_server,
	  "maximum total prompt work that may wait, in seconds at the measured speed; 0: no limit" },
	{ CMD_TUNE | CMD_SERVE, "max-connections", NULL, NULL, K_INT, AT(serve.connections), NONE, 1, 1 << 20, "N",
	  "1024", group_server, "maximum number of connections" },
	{ CMD_SERVE, "max-body", NULL, NULL, K_SIZE, AT(serve.body_bytes), NONE, 0, 0, "SIZE", "64M", group_server,
	  "maximum size of a request body" },
	{ CMD_TUNE | CMD_SERVE, "sse-keep-alive", NULL, NULL, K_INT, AT(serve.keep_alive), NONE, 0, 3600, "SECONDS",
	  "15", group_server, "send a comment in a stream after this long without data; 0: never" },
	{ CMD_TUNE | CMD_SERVE, "response-store-bytes", NULL, NULL, K_SIZE, AT(serve.response_bytes), NONE, 0, 0,
	  "SIZE", "64M", group_server,
	  "memory for /v1/responses answers that later requests may continue; 0: store none" },
	{ CMD_SERVE, "timeout", "to", NULL, K_INT, AT(serve.timeout), NONE, 1, 86400, "SECONDS", "60", group_server,
	  "time limit for receiving a request body; headers get a sixth of it" },
	{ CMD_TUNE | CMD_SERVE, "client-stall-timeout", NULL, NULL, K_INT, AT(serve.stall), NONE, 1, 86400, "SECONDS",
	  "30", group_server, "drop a client that has not read its answer for this long" },
	{ CMD_TUNE | CMD_SERVE, "idle-timeout", NULL, NULL, K_INT, AT(serve.idle), NONE, 1, 86400, "SECONDS", "75",
	  group_server, "close a connection that has been idle for this long" },
	{ CMD_SERVE, "grace-seconds", NULL, NULL, K_INT, AT(serve.grace), NONE, 0, 86400, "SECONDS", "30", group_server,
	  "after SIGTERM, let answers run for this long; new requests get 503" },
	{ CMD_TUNE | CMD_SERVE, "watchdog-seconds", NULL, NULL, K_INT, AT(serve.stuck), NONE, 1, 86400, "SECONDS",
	  "120", group_server,
	  "report /health 503 if the engine makes no progress for this long; must exceed the longest step" },
	{ CMD_SERVE, "turn-replay", NULL, NULL, K_REPLAY, AT(serve.turn_replay), NONE, 0, 0, "off|text|all", "all",
	  group_server,
	  "reuse the original tokens of earlier answers even if the client reformatted them; text: except their thinking" },
	{ CMD_TUNE | CMD_SERVE, "turn-memory", NULL, NULL, K_SIZE, AT(serve.turn_bytes), NONE, 0, 0, "SIZE", "64M",
	  group_server, "memory for the answers that --turn-replay needs" },
	{ CMD_SERVE | CMD_PACK, "drop-volatile-lines", NULL, NULL, K_FLAG, AT(serve.drop_volatile), NONE, 0, 0, NULL,
	  NULL, group_server,
	  "remove system message lines that change with every request and carry no meaning, such as Claude Code's billing header" },
	{ CMD_TUNE | CMD_SERVE, "kv-events", NULL, NULL, K_TEXT, AT(serve.kv_events), NONE, 0, 0, "ADDRESS", NULL,
	  group_server,
	  "publish cached prefixes over ZeroMQ as vLLM does, such as tcp://*:5557 (docs/fleet.md); they contain the tokens of prompts" },
	{ CMD_TUNE | CMD_SERVE, "kv-events-replay", NULL, NULL, K_TEXT, AT(serve.kv_replay), NONE, 0, 0, "ADDRESS",
	  NULL, group_server, "with kv-events: replay missed messages, such as tcp://*:5558" },
	{ CMD_TUNE | CMD_SERVE, "kv-events-topic", NULL, NULL, K_TEXT, AT(serve.kv_topic), NONE, 0, 0, "TOPIC",
	  "kv-events", group_server, "with kv-events: their topic; llm-d expects kv@POD@MODEL" },
	{ CMD_TUNE | CMD_SERVE, "kv-events-format", NULL, NULL, K_TEXT, AT(serve.kv_format), NONE, 0, 0, "map|array",
	  "map", group_server, "with kv-events: array is the format of vLLM before 0.23" },
	{ CMD_TUNE | CMD_SERVE, "journal", NULL, NULL, K_FLAG, AT(serve.journal), NONE, 0, 0, NULL, NULL, group_server,
	  "keep the tokens of running streams in --prompt-cache-dir, so that another server with that folder can continue a stream (docs/fleet.md)" },
	{ CMD_SERVE, "log-prompts", NULL, NULL, K_FLAG, AT(serve.log_prompts), NONE, 0, 0, NULL, NULL, group_server,
	  "log the text of every prompt" },

	{ CMD_COMMON | CMD_CHAT, "temp", NULL, "temperature", K_DOUBLE, AT(load.answer.temperature),
	  AT(load.answer.temperature_set), 0, 100, "T", NULL, group_answer,
	  "temperature; 0: always the most likely token.  Default: the model's, or 1" },
	{ CMD_CHAT, "top-p", NULL, NULL, K_DOUBLE, AT(load.answer.top_p), AT(load.answer.top_p_set), 0, 1, "P", NULL,
	  group_answer,
	  "sample from the most likely tokens up to this total probability.  Default: the model's, or 1 (all)" },
	{ CMD_CHAT, "top-k", NULL, NULL, K_INT, AT(load.answer.top_k), AT(load.answer.top_k_set), 0, INT_MAX, "K", NULL,
	  group_answer, "sample from the K most likely tokens.  Default: the model's, or 0 (all)" },
	{ CMD_CHAT, "min-p", NULL, NULL, K_DOUBLE, AT(load.answer.min_p), AT(load.answer.min_p_set), 0, 1, "P", NULL,
	  group_answer, "drop tokens less likely than P times the most likely.  Default: the model's, or 0 (off)" },
	{ CMD_CHAT, "repetition-penalty", NULL, "repeat-penalty", K_DOUBLE, AT(load.answer.repetition_penalty),
	  AT(load.answer.repetition_set), 0, 100, "X", NULL, group_answer,
	  "divide the score of tokens that occurred before.  Default: the model's, or 1 (off)" },
	{ CMD_CHAT, "presence-penalty", NULL, NULL, K_DOUBLE, AT(load.answer.presence_penalty), NONE, -2, 2, "X", "0",
	  group_answer, "subtract from the score of tokens that the answer has used" },
	{ CMD_CHAT, "frequency-penalty", NULL, NULL, K_DOUBLE, AT(load.answer.frequency_penalty), NONE, -2, 2, "X", "0",
	  group_answer, "subtract from the score for each use in the answer" },
	{ CMD_CHAT, "max-tokens", "n", "predict n-predict", K_INT, AT(max_tokens), NONE, -1, INT_MAX, "N", "-1",
	  group_answer, "maximum answer length in tokens, unless a request names its own; -1: up to the context size" },
	{ CMD_CHAT, "seed", "s", NULL, K_INT64, AT(seed), NONE, -1, 9e15, "N", "-1", group_answer,
	  "random seed; -1: a new one for each answer" },
	{ CMD_COMMON | CMD_CHAT | CMD_PACK, "think", NULL, NULL, K_THINK, AT(load.answer.think), NONE, 0, 0, "on|off",
	  NULL, group_answer,
	  "let the model think before it answers, if its template supports it.  Default: the template's" },
	{ CMD_CHAT | CMD_PACK, "chat-template", NULL, "chat-template-file", K_TEXT, AT(load.answer.template_file), NONE,
	  0, 0, "FILE", NULL, group_answer, "Jinja template to use instead of the model's" },
	{ CMD_CHAT | CMD_PACK, "chat-template-args", NULL, "chat-template-kwargs", K_TEXT,
	  AT(load.answer.template_args), NONE, 0, 0, "JSON", NULL, group_answer,
	  "extra template variables as a JSON object, such as {\"enable_thinking\": false}" },

	{ CMD_ALL & ~(CMD_INSPECT | CMD_LIST | CMD_CACHE), "model", "m", NULL, K_TEXT, AT(load.model), NONE, 0, 0,
	  "MODEL", NULL, group_model, "same as the argument MODEL" },
	{ CMD_COMMON | CMD_PPL, "ctx-size", "c", "max-model-len", K_INT, AT(load.ctx_size), NONE, 0, INT_MAX, "N", "0",
	  group_model, "longest piece of text read at once; 0: 2048, or the model's maximum if smaller" },
	{ CMD_COMMON | ((CMD_ENGINE & ~(CMD_BENCH | CMD_PPL)) | CMD_INSPECT), "ctx-size", "c", "max-model-len", K_INT,
	  AT(load.ctx_size), NONE, 0, INT_MAX, "N", "0", group_model,
	  "maximum sequence length in tokens, answer included; 0: the model's maximum" },
	{ CMD_COMMON | CMD_SERVE | CMD_INSPECT, "parallel", "np", "max-num-seqs", K_INT, AT(load.parallel), NONE, 1,
	  1024, "N", "8", group_model, "maximum number of requests computed at once; others wait" },
	{ CMD_COMMON | CMD_ENGINE | CMD_QUANTIZE, "threads", "t", NULL, K_INT, AT(load.threads), NONE, 0, 1024, "N",
	  "0", group_model, "number of compute threads; 0: one per processor" },
	{ CMD_TUNE | CMD_ENGINE, "prefill-step-size", NULL, "ubatch-size", K_INT, AT(load.step_rows), NONE, 0, 65536,
	  "N", "0", group_model,
	  "maximum number of tokens computed in one step; 0: 256, or 1024 for a mixture of experts" },
	{ CMD_TUNE | CMD_SERVE, "decode-gap-ms", NULL, NULL, K_INT, AT(load.decode_gap), NONE, 1, 60000, "MS", "100",
	  group_model,
	  "while prompts are computed, running answers get a token at least this often, or every decode step if that is longer" },
	{ CMD_TUNE | CMD_SERVE, "answer-reserve", NULL, NULL, K_INT, AT(load.answer_reserve), NONE, 1, INT_MAX, "N",
	  "512", group_model,
	  "number of answer tokens for which memory is reserved before an answer starts; longer answers may have to wait for memory" },
	{ CMD_SERVE | CMD_RUN | CMD_LOGITS | CMD_BENCH, "lora", NULL, "lora-modules", K_TEXTS, AT(load.lora), NONE, 0,
	  0, "NAME=PATH[,SCALE]", NULL, group_model,
	  "load a LoRA adapter (a GGUF file or a PEFT folder); may be repeated.  Server requests choose one by name; other commands apply all" },
	{ CMD_SERVE | CMD_RUN | CMD_LOGITS | CMD_INSPECT | CMD_PACK, "mmproj", "mm", NULL, K_TEXT, AT(load.mmproj),
	  NONE, 0, 0, "FILE", NULL, group_model,
	  "file with the image tower of a GGUF model; none: no tower.  Default: the *mmproj*.gguf next to the model" },
	{ CMD_COMMON | CMD_ENGINE, "memory", NULL, NULL, K_SIZE, AT(load.memory_bytes), NONE, 0, 0, "SIZE", "0",
	  group_model,
	  "total memory budget, weights included; caches without an explicit size share what remains.  0: choose by available memory" },
	{ CMD_COMMON | CMD_ENGINE | CMD_INSPECT, "expert-memory", NULL, NULL, K_SIZE, AT(load.expert_bytes), NONE, 0, 0,
	  "SIZE", "0", group_model,
	  "memory for the experts of a mixture; other experts are read from disk on use.  Answers do not change.  0: all experts, or what the memory budget allows" },
	{ CMD_ENGINE, "expert-dir", NULL, NULL, K_TEXT, AT(load.experts.dir), NONE, 0, 0, "DIR", NULL, group_model,
	  "with experts on disk: folder for a copy that is faster to read, written once.  Default: read from the model" },
	{ CMD_TUNE | CMD_ENGINE, "expert-trace", NULL, NULL, K_TEXT, AT(load.experts.trace), NONE, 0, 0, "FILE", NULL,
	  group_model,
	  "with experts on disk: log the experts that each layer uses in each step (docs/experts-from-disk.md)" },
	{ CMD_TUNE | CMD_ENGINE, "expert-io", NULL, NULL, K_TEXT, AT(load.experts.io), NONE, 0, 0,
	  "auto|io_uring|threads", NULL, group_model,
	  "how experts are read; auto: io_uring where the system allows it" },
	{ CMD_ENGINE | CMD_INSPECT, "tables", NULL, NULL, K_TABLES, AT(load.tables), NONE, 0, 0, "auto|memory|disk",
	  "auto", group_model,
	  "keep large embedding tables in memory, or read their rows from disk.  Answers do not change.  auto: on disk only if the model does not fit in memory" },
	{ CMD_TUNE | CMD_SERVE | CMD_RUN | CMD_BENCH, "no-huge-pages", NULL, NULL, K_FLAG, AT(load.small_pages), NONE,
	  0, 0, NULL, NULL, group_model, "do not repack weights into huge pages in the background" },
	{ (CMD_ENGINE & ~CMD_BENCH) | CMD_INSPECT, "kv-bytes", NULL, NULL, K_SIZE, AT(load.kv_bytes), NONE, 0, 0,
	  "SIZE", "0", group_model,
	  "memory for keys and values; 0: enough for --parallel sequences of --ctx-size and for cached prefixes, at most a quarter of the machine's memory" },
	{ CMD_COMMON | CMD_ENGINE | CMD_INSPECT, "kv-bits", NULL, NULL, K_TEXT, AT(kv_ask.bits), NONE, 0, 0, "N", NULL,
	  group_model,
	  "bits per number in keys and values: 16 (bf16), 8, 4, 3.5, 3, 2.5 or 2; 3.5 means 3 for keys and 4 for values, 2.5 means 2 and 3.  Default: 16" },
	{ CMD_TUNE | CMD_ENGINE | CMD_INSPECT, "kv-key-bits", NULL, NULL, K_TEXT, AT(kv_ask.key_bits), NONE, 0, 0, "N",
	  NULL, group_model, "bits of keys alone: 16, 8, 4, 3 or 2" },
	{ CMD_TUNE | CMD_ENGINE | CMD_INSPECT, "kv-value-bits", NULL, NULL, K_TEXT, AT(kv_ask.value_bits), NONE, 0, 0,
	  "N", NULL, group_model, "bits of values alone: 16, 8, 4, 3 or 2" },
	{ CMD_TUNE | CMD_ENGINE | CMD_INSPECT, "kv-quant-scheme", NULL, NULL, K_TEXT, AT(kv_ask.scheme), NONE, 0, 0,
	  "auto|uniform|turboquant", NULL, group_model,
	  "uniform: equal steps within a group (8, 4 bits); turboquant: a rotation and a codebook (4, 3, 2 bits).  Default auto: uniform at 8 bits, else turboquant" },
	{ CMD_TUNE | CMD_ENGINE | CMD_INSPECT, "kv-group-size", NULL, NULL, K_INT, AT(kv_ask.group), NONE, 1, 4096, "N",
	  NULL, group_model, "with uniform: numbers per group.  Default: 64, or 32 if the head size requires it" },
	{ CMD_TUNE | CMD_ENGINE | CMD_INSPECT, "kv-skip-layers", NULL, NULL, K_TEXT, AT(kv_ask.skip), NONE, 0, 0,
	  "LIST", NULL, group_model,
	  "attention layers that stay at 16 bits: first, last or numbers from 0, such as first,3,last.  Default: none" },
	{ CMD_SERVE | CMD_RUN | CMD_PACK, "prompt-cache-bytes", NULL, NULL, K_SIZE, AT(load.prefix_bytes), NONE, 0, 0,
	  "SIZE", NULL, group_model,
	  "memory for cached prompt prefixes; 0: none.  Default: a quarter of what the model leaves" },
	{ CMD_COMMON | CMD_SERVE | CMD_RUN, "prompt-cache-dir", NULL, NULL, K_TEXT, AT(load.disk.dir), NONE, 0, 0,
	  "DIR", NULL, group_model,
	  "folder for cached prompt prefixes, which survive restarts; it contains the text of prompts" },
	{ CMD_COMMON | CMD_SERVE, "pack", NULL, NULL, K_TEXTS, AT(load.disk.pack), NONE, 0, 0, "FILE", NULL,
	  group_model, "read prompt prefixes from this file too (weft pack, weft cache export); may be repeated" },
	{ CMD_SERVE | CMD_RUN, "prompt-cache-disk-bytes", NULL, NULL, K_SIZE, AT(load.disk.bytes), NONE, 0, 0, "SIZE",
	  "20G", group_model, "with --prompt-cache-dir: maximum size of the folder" },
	{ CMD_SERVE, "prompt-cache-url", NULL, NULL, K_TEXT, AT(load.disk.url), NONE, 0, 0, "URL", NULL, group_model,
	  "Redis server that has cached prefixes too, for servers that share no disk: redis://[user:password@]host[:port][/db], or rediss://.  The variable WEFT_REDIS_PASSWORD goes before the URL's password" },
	{ CMD_TUNE | CMD_SERVE, "prompt-cache-url-days", NULL, NULL, K_DOUBLE, AT(load.disk.url_days), NONE, 0.001,
	  3650, "DAYS", "7", group_model, "with --prompt-cache-url: prefixes that are not used for this long go" },
	{ CMD_TUNE | CMD_SERVE | CMD_RUN, "prompt-cache-disk-wait", NULL, NULL, K_DOUBLE, AT(load.disk.wait), NONE, 0,
	  3600, "SECONDS", "0", group_model,
	  "with --prompt-cache-dir: longest time that a prompt waits to read its prefix; 0: as long as computing it would take" },
	{ CMD_SERVE, "verify-cache", NULL, NULL, K_DOUBLE, AT(load.verify_cache), NONE, 0, 1, "P", "0", group_model,
	  "when idle, recompute this share of reused prefixes and compare byte for byte" },
	{ CMD_CHAT | CMD_PACK, "draft-kind", NULL, NULL, K_DRAFT, AT(load.draft.kind), NONE, 0, 0,
	  "none|ngram|grammar|model|head|auto", "auto", group_model,
	  "speculative decoding: none, n-gram lookup, grammar, draft model, draft head, or all available (auto).  Answers do not change" },
	{ CMD_LOGITS, "draft", NULL, "draft-kind", K_DRAFT, AT(load.draft.kind), NONE, 0, 0,
	  "none|ngram|grammar|model|head|auto", "none", group_this,
	  "speculative decoding while decoding; changes no bit" },
	{ CMD_BENCH, "draft-kind", NULL, NULL, K_DRAFT, AT(load.draft.kind), NONE, 0, 0,
	  "none|ngram|grammar|model|head|auto", "none", group_model,
	  "also decode with this kind of speculation and print the speed-up" },
	{ CMD_COMMON | CMD_INSPECT | (CMD_ENGINE & ~CMD_PPL), "draft-model", "md", NULL, K_TEXTS, AT(load.draft.model),
	  NONE, 0, 0, "MODEL", NULL, group_model,
	  "smaller model with the same vocabulary, or a draft head (MTP, EAGLE-3, DFlash, DFlash 2, DSpark, Gemma 4's assistant); may be given once for each kind" },
	{ CMD_ENGINE & ~CMD_PPL, "num-draft-tokens", NULL, "draft-max draft", K_INT, AT(load.draft.n), NONE, 0, 16, "N",
	  "8", group_model, "maximum number of tokens drafted per step; fewer when drafting does not pay" },
	{ CMD_TUNE | CMD_SERVE | CMD_RUN | CMD_BENCH, "draft-fixed", NULL, NULL, K_FLAG, AT(load.draft.fixed), NONE, 0,
	  0, NULL, NULL, group_model, "always draft --num-draft-tokens tokens, even when it does not pay" },
	{ CMD_TUNE | CMD_SERVE | CMD_RUN | CMD_BENCH, "draft-pretend", NULL, "synthetic-acceptance", K_DOUBLE,
	  AT(load.draft.pretend), NONE, 0, 1, "SHARE", "0", group_model,
	  "accept this share of drafted tokens without checking; answers become meaningless" },
	{ CMD_ENGINE, "cpu", NULL, NULL, K_CPU, AT(load.cpu), NONE, 0, 0, "LEVEL", NULL, group_model,
	  "newest instruction set to use.  Default: the fastest on this processor" },
	{ CMD_ENGINE | CMD_INSPECT, "device", NULL, NULL, K_TEXT, AT(load.device), NONE, 0, 0, "NAME", "auto",
	  group_model,
	  "device that computes: cpu, cuda or opencl; cuda:1 is the second; cuda,20 computes the first 20 layers, cuda,experts all but the experts, and the processor the rest.  auto: a GPU that can compute the model or a part of it, else the processor; cuda,auto may divide it too.  cuda,memory=6G limits the memory used there" },
	{ CMD_TUNE | CMD_ENGINE, "arith", NULL, NULL, K_ARITH, AT(load.arith), NONE, 0, 0, "f32|fast", "fast",
	  group_model, "f32: reference arithmetic; fast: serving arithmetic" },

	{ CMD_COMMON | CMD_ALL, "config", NULL, NULL, K_TEXT, AT(said.config), NONE, 0, 0, "FILE", NULL, group_all,
	  "file of options, one 'name = value' per line; # starts a comment.  Environment variables WEFT_NAME (WEFT_KV_BITS for --kv-bits) override the file; the command line overrides both" },
	{ CMD_ENGINE | CMD_INSPECT, "tune", NULL, NULL, K_TUNE, 0, NONE, 0, 0, "NAME=VALUE", NULL, group_all,
	  "set an option for experiments; may be repeated.  `--help tune` lists the names" },
	{ CMD_ALL, "log-level", NULL, NULL, K_LOG, AT(log_level), NONE, 0, 0, "error|warn|info|debug", NULL, group_all,
	  "what is written to standard error.  Default: info for `serve`, else warn" },
	{ CMD_ALL, "log-format", NULL, NULL, K_LOG_FORMAT, AT(log_format), NONE, 0, 0, "text|json", NULL, group_all,
	  "text, or json with one object per line (default text)" },
	{ CMD_COMMON | CMD_ALL | CMD_COMPLETION | CMD_MAN | CMD_MODELS | CMD_AGENTS, "help", "h", NULL, K_HELP,
	  AT(said.help), NONE, 0, 0, "[all|tune]", NULL, group_all,
	  "show the common options; all: every option; tune: those of --tune" },
};
const int n_options = sizeof(option_table) / sizeof(option_table[0]);
_Static_assert(sizeof(option_table) / sizeof(option_table[0]) < OPTION_MAX, "OPTION_MAX is too small");

/* ---- options that would do nothing ---- */

static bool no_kv_events(const struct options *o)
{
	return !o->serve.kv_events;
}
static bool no_folder(const struct options *o)
{
	return !o->load.disk.dir && !options_are_several(o); /* several have a folder always */
}
static bool no_redis(const struct options *o)
{
	return !o->load.disk.url;
}
static bool nothing_kept(const struct options *o)
{
	return no_folder(o) && no_redis(o);
}
static bool no_url(const struct options *o)
{
	return !o->remote.url;
}
static bool url(const struct options *o)
{
	return o->remote.url != NULL;
}
static bool url_args(const struct options *o)
{
	return o->remote.url && o->load.answer.template_args;
}
static bool no_store(const struct options *o)
{
	return !o->load.prefix_bytes;
}
static bool no_replay(const struct options *o)
{
	return o->serve.turn_replay == REPLAY_OFF;
}
static bool no_draft(const struct options *o)
{
	return o->load.draft.kind == DRAFT_NONE && o->load.draft.n;
}
static bool no_bench_draft(const struct options *o)
{
	return no_draft(o) && !o->load.draft.model.n && o->load.draft.pretend == 0;
}
static bool no_tokens(const struct options *o)
{
	return !o->load.draft.n;
}
static bool pretends(const struct options *o)
{
	return o->load.draft.pretend > 0;
}
static bool no_images(const struct options *o)
{
	return !o->run.images.n && !o->logits.images.n;
}
static bool no_prefixes(const struct options *o)
{
	return !o->bench_serve.prefixes;
}

static bool all_zero(const struct ints *v)
{
	for (int i = 0; i < v->n; i++)
		if (v->v[i])
			return false;
	return true;
}

static bool no_output(const struct options *o)
{
	return all_zero(&o->bench.output);
}
static bool paired(const struct options *o)
{
	return o->bench.paired != NULL;
}

/* An option that was given and cannot have an effect with the others is refused.
 * (load.c and others refuse the cases that need a closer look.)
 * Options of what `bench` measures are not refused: scripts go through batches and depths, 0 and 1 among them. */
static const struct idle {
	unsigned commands;
	const char *names; /* options, separated by spaces; NULL: all of group but the model */
	const char *group;
	bool (*is)(const struct options *o);
	const char *why; /* after "does nothing " */
} idle[] = {
	{ CMD_SERVE | CMD_RUN, "prompt-cache-disk-bytes journal", NULL, no_folder, "without --prompt-cache-dir" },
	{ CMD_SERVE | CMD_RUN, "prompt-cache-disk-wait", NULL, nothing_kept, "without --prompt-cache-dir" },
	{ CMD_SERVE, "prompt-cache-url-days", NULL, no_redis, "without --prompt-cache-url" },
	{ CMD_SERVE, "verify-cache pack prompt-cache-url kv-events journal", NULL, no_store,
	  "with --prompt-cache-bytes 0" },
	{ CMD_SERVE, "kv-events-replay kv-events-topic kv-events-format", NULL, no_kv_events, "without kv-events" },
	{ CMD_SERVE, "turn-memory", NULL, no_replay, "with --turn-replay off" },
	{ CMD_RUN, "api-key", NULL, no_url, "without --url" },
	{ CMD_RUN, "chat-template", NULL, url, "with --url: the server has the template" },
	{ CMD_RUN, "think", NULL, url_args, "with --url and --chat-template-args; use enable_thinking there" },
	{ CMD_RUN, NULL, group_model, url, "with --url: the server has the model" },
	{ CMD_RUN | CMD_LOGITS, "mmproj", NULL, no_images, "without --image and --sound" },
	{ CMD_CHAT | CMD_LOGITS, "num-draft-tokens draft-fixed draft-pretend", NULL, no_draft,
	  "with --draft-kind none" },
	{ CMD_BENCH, "num-draft-tokens draft-fixed", NULL, no_bench_draft,
	  "without --draft-kind, --draft-model or --draft-pretend" },
	{ CMD_CHAT | CMD_LOGITS | CMD_BENCH, "draft-model draft-fixed draft-pretend", NULL, no_tokens,
	  "with --num-draft-tokens 0" },
	{ CMD_CHAT | CMD_BENCH, "draft-model", NULL, pretends, "with --draft-pretend" },
	{ CMD_BENCH, "draft-kind draft-model draft-pretend", NULL, no_output,
	  "without --output-tokens: prompts are computed with no guesses" },
	{ CMD_BENCH, "profile", NULL, paired, "with --paired: only speeds are compared" },
	{ CMD_BENCH_SERVE, "prefix-tokens", NULL, no_prefixes, "without --prefixes" },
};

bool option_named(const char *word, size_t n, const char *list)
{
	while (list && *list) {
		size_t k = strcspn(list, " ");

		if (k == n && !memcmp(list, word, n))
			return true;
		list += k + (list[k] == ' ');
	}
	return false;
}

int options_refuse_idle(const struct command *c, const struct options *o, const bool *given, struct err *err)
{
	for (size_t k = 0; k < sizeof(idle) / sizeof(idle[0]); k++) {
		const struct idle *d = &idle[k];

		if (!(d->commands & c->bit) || !d->is(o))
			continue;
		for (int i = 0; i < n_options; i++) {
			const struct option *op = &option_table[i];

			if (given[i] && (option_named(op->name, strlen(op->name), d->names) ||
			                 (op->group == d->group && op->at != AT(load.model))))
				return err_set(err, E_ARG, "--%s does nothing %s", op->name, d->why);
		}
	}
	return 0;
}
