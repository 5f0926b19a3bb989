/* option_table.c - the options; see option_table.h. */
#include <limits.h>
#include <string.h>

#include "cli/option_table.h"
#include "server/past.h"

#define AT(field) offsetof(struct options, field)
enum { NONE = 0 }; /* no "was set" flag: offset 0 is the model's */

static const char group_model[] = "Model and engine", group_answer[] = "Answers", group_server[] = "Server",
		  group_this[] = "This command", group_all[] = "General";
const char *const option_groups[] = { group_this, group_answer, group_server, group_model, group_all, NULL };

const struct option option_table[] = {
	{ CMD_COMMON | CMD_RUN, "prompt", "p", NULL, K_TEXT, AT(prompt), NONE, 0, 0, "TEXT", NULL, group_this,
	  "answer TEXT, print the answer on standard output and end" },
	{ CMD_COMMON | CMD_RUN, "system-prompt", "sys", "system", K_TEXT, AT(system), NONE, 0, 0, "TEXT", NULL,
	  group_this, "system message before the conversation" },
	{ CMD_COMMON | CMD_RUN, "url", NULL, NULL, K_TEXT, AT(url), NONE, 0, 0, "URL", NULL, group_this,
	  "ask a server with the OpenAI API, as http://127.0.0.1:8080 or unix:/path; MODEL is its name for the model" },
	{ CMD_COMMON | CMD_RUN, "api-key", NULL, NULL, K_TEXT, AT(api_key), NONE, 0, 0, "KEY", NULL, group_this,
	  "with --url: the server's key; else the variable WEFT_API_KEY" },
	{ CMD_RUN, "show-thinking", NULL, NULL, K_FLAG, AT(show_thinking), NONE, 0, 0, NULL, NULL, group_this,
	  "with -p or a pipe: print the thinking as well as the answer" },
	{ CMD_LOGITS, "ids", NULL, NULL, K_TEXT, AT(ids), NONE, 0, 0, "FILE", NULL, group_this,
	  "JSON array of token ids" },
	{ CMD_PPL, "text", "f", NULL, K_TEXT, AT(text_file), NONE, 0, 0, "FILE", NULL, group_this,
	  "text to read; a form feed (the byte 12) begins a new one" },
	{ CMD_PPL, "ids", NULL, NULL, K_TEXT, AT(ids), NONE, 0, 0, "FILE", NULL, group_this,
	  "token ids to read instead: a JSON array, or an array of them, one for each text" },
	{ CMD_PPL, "against", NULL, NULL, K_AGAINST, AT(against), NONE, 0, 0, "bf16|exact|none", "bf16", group_this,
	  "what to compare with: the 16-bit cache under the same --arith; the reference arithmetic with a float32 cache; "
	  "or nothing, for perplexity alone" },
	{ CMD_PPL, "against-model", NULL, NULL, K_TEXT, AT(against_model), NONE, 0, 0, "MODEL", NULL, group_this,
	  "compare with another model of the same vocabulary instead, under the same settings" },
	{ CMD_COMMON | CMD_QUANTIZE, "type", NULL, NULL, K_TEXT, AT(quant_type), NONE, 0, 0, "TYPE", NULL, group_this,
	  "a GGUF type or mix (Q8_0, Q4_0, Q4_K_M, Q5_K_M, Q6_K, IQ4_XS ...), affine2 to affine8 (affine4g32: groups of "
	  "32) or mxfp4" },
	{ CMD_COMMON | CMD_QUANTIZE, "out", "o", NULL, K_TEXT, AT(out), NONE, 0, 0, "PATH", NULL, group_this,
	  "the GGUF file, or the folder, to be made" },
	{ CMD_COMMON | CMD_QUANTIZE, "mmproj-out", NULL, NULL, K_TEXT, AT(mmproj_out), NONE, 0, 0, "FILE", NULL,
	  group_this, "also write the tower of a folder that reads images as a projector file" },
	{ CMD_COMMON | CMD_QUANTIZE, "imatrix", NULL, NULL, K_TEXT, AT(imatrix), NONE, 0, 0, "FILE", NULL, group_this,
	  "importance of each input, as llama.cpp's imatrix writes it (either form)" },
	{ CMD_COMMON | CMD_QUANTIZE, "calibrate", NULL, NULL, K_TEXT, AT(calibrate), NONE, 0, 0, "FILE", NULL,
	  group_this, "read this text first, and let inputs count as much as they are used in it" },
	{ CMD_COMMON | CMD_QUANTIZE, "text", "f", NULL, K_TEXT, AT(text_file), NONE, 0, 0, "FILE", NULL, group_this,
	  "then read this text with both models, and print how far the predictions are apart" },
	{ CMD_PPL, "json", NULL, NULL, K_FLAG, AT(ppl_json), NONE, 0, 0, NULL, NULL, group_this,
	  "print one JSON object" },
	{ CMD_LOGITS, "out", "o", NULL, K_TEXT, AT(out), NONE, 0, 0, "FILE", NULL, group_this,
	  "safetensors file to write: logits [n, V] float32" },
	{ CMD_LOGITS, "split", NULL, NULL, K_INTS, AT(split), NONE, 1, INT_MAX, "N,N,..", NULL, group_this,
	  "sizes of the prefill chunks, used in turn" },
	{ CMD_LOGITS, "greedy", NULL, NULL, K_INT, AT(greedy), NONE, 0, INT_MAX, "N", "0", group_this,
	  "then decode N tokens: adds greedy_ids [N] and step_logits [N, V]; row 0 is the prompt's last" },
	{ CMD_LOGITS, "alongside", NULL, NULL, K_INT, AT(alongside), NONE, 0, 1024, "N", "0", group_this,
	  "N other sequences with other tokens share every step" },
	{ CMD_LOGITS, "resume-at", NULL, NULL, K_INT, AT(resume_at), NONE, 0, INT_MAX, "K", "0", group_this,
	  "at position K: capture, restore into a new sequence, go on" },
	{ CMD_LOGITS, "warm", NULL, NULL, K_TEXT, AT(warm), NONE, 0, 0, "FILE", NULL, group_this,
	  "run these ids first and take what both begin with from the store" },
	{ CMD_INSPECT, "memory", NULL, NULL, K_FLAG, AT(plan), NONE, 0, 0, NULL, NULL, group_this,
	  "say what serving it would take of this machine's memory, part by part, and nothing else (docs/memory.md)" },
	{ CMD_LOGITS, "image", NULL, NULL, K_TEXTS, AT(images), NONE, 0, 0, "FILE", NULL, group_this,
	  "the k-th run of image placeholders in the ids stands for the k-th image; a run of one is expanded" },
	{ CMD_RUN, "image", NULL, NULL, K_TEXTS, AT(images), NONE, 0, 0, "FILE", NULL, group_this,
	  "an image that the first message shows; may be given several times" },
	{ CMD_INSPECT, "tensors", NULL, NULL, K_FLAG, AT(tensors), NONE, 0, 0, NULL, NULL, group_this,
	  "list every tensor, and why it is ignored if it is" },
	{ CMD_INSPECT, "json", NULL, NULL, K_FLAG, AT(inspect_json), NONE, 0, 0, NULL, NULL, group_this,
	  "print one JSON object, whose members stay" },
	{ CMD_TOKENIZE, "pieces", NULL, NULL, K_FLAG, AT(pieces), NONE, 0, 0, NULL, NULL, group_this,
	  "print the text of each id beside it" },
	{ CMD_TOKENIZE | CMD_PPL, "special", NULL, NULL, K_FLAG, AT(special), NONE, 0, 0, NULL, NULL, group_this,
	  "text that spells a special token becomes that token" },
	{ CMD_TOKENIZE, "around", NULL, NULL, K_FLAG, AT(around), NONE, 0, 0, NULL, NULL, group_this,
	  "add the tokens that the tokenizer puts around a text" },

	{ CMD_BENCH, "prompt-tokens", "p", "n-prompt", K_INTS, AT(bench_prompt), NONE, 0, INT_MAX, "N,N,..", "512",
	  group_this, "lengths of prompts to compute, a row for each; 0: none" },
	{ CMD_BENCH, "output-tokens", "n", "n-gen", K_INTS, AT(bench_output), NONE, 0, INT_MAX, "N,N,..", "64",
	  group_this, "numbers of tokens to decode, a row for each; 0: none" },
	{ CMD_BENCH, "depth", "d", "n-depth", K_INTS, AT(bench_depth), NONE, 0, INT_MAX, "N,N,..", "0", group_this,
	  "tokens that every sequence has before; each row for each depth" },
	{ CMD_BENCH, "depth-filled", NULL, NULL, K_FLAG, AT(bench_fill), NONE, 0, 0, NULL, NULL, group_this,
	  "what comes before is not computed but random numbers: long contexts at once, and no other speed" },
	{ CMD_BENCH, "batch", "b", NULL, K_INTS, AT(bench_batch), NONE, 1, 256, "N,N,..", "1", group_this,
	  "sequences that decode together; each row of --output-tokens for each" },
	{ CMD_BENCH, "repetitions", "r", NULL, K_INT, AT(bench_repeat), NONE, 1, 1000, "N", "5", group_this,
	  "measurements of a row, of which the median is printed, after one that is not counted" },
	{ CMD_BENCH, "profile", NULL, NULL, K_FLAG, AT(bench_profile), NONE, 0, 0, NULL, NULL, group_this,
	  "one more of each, with a clock around every operation: where the time goes" },
	{ CMD_BENCH, "paired", NULL, NULL, K_TEXT, AT(bench_paired), NONE, 0, 0, "PROGRAM", NULL, group_this,
	  "run another build of weft in turn with this one, -r rounds, and print the ratio of their speeds" },
	{ CMD_BENCH, "json", NULL, NULL, K_FLAG, AT(bench_json), NONE, 0, 0, NULL, NULL, group_this,
	  "print a JSON array, an object for each row" },

	{ CMD_BENCH_SERVE, "requests", NULL, "num-prompts", K_INT, AT(bench_requests), NONE, 1, 10000000, "N", "100",
	  group_this, "requests in all" },
	{ CMD_BENCH_SERVE, "rate", NULL, "request-rate", K_DOUBLE, AT(bench_rate), NONE, 0, 1e6, "R", "1", group_this,
	  "mean arrivals a second, as a Poisson process; 0: all at once" },
	{ CMD_BENCH_SERVE, "prompt-tokens", NULL, NULL, K_INTS, AT(bench_prompt), NONE, 1, INT_MAX, "N,N,..",
	  "64,256,1024", group_this,
	  "lengths of a prompt's own text, one of them for each request; in words, of about a token each" },
	{ CMD_BENCH_SERVE, "output-tokens", NULL, NULL, K_INTS, AT(bench_output), NONE, 1, INT_MAX, "N,N,..",
	  "16,64,256", group_this, "max_tokens, one of them for each request" },
	{ CMD_BENCH_SERVE, "prefixes", NULL, NULL, K_INT, AT(bench_prefixes), NONE, 0, 1 << 20, "N", "0", group_this,
	  "so many texts that prompts share as their beginning; each request takes one" },
	{ CMD_BENCH_SERVE, "prefix-tokens", NULL, NULL, K_INT, AT(bench_prefix_words), NONE, 1, INT_MAX, "N", "512",
	  group_this, "length of each" },
	{ CMD_BENCH_SERVE, "abort", NULL, NULL, K_DOUBLE, AT(bench_abort), NONE, 0, 1, "SHARE", "0", group_this,
	  "share of requests that leave before their answer is complete" },
	{ CMD_BENCH_SERVE, "completions", NULL, NULL, K_FLAG, AT(bench_completions), NONE, 0, 0, NULL, NULL, group_this,
	  "use /v1/completions; else /v1/chat/completions" },
	{ CMD_BENCH_SERVE, "ignore-eos", NULL, NULL, K_FLAG, AT(bench_ignore_eos), NONE, 0, 0, NULL, NULL, group_this,
	  "answers run to max_tokens, on servers that know ignore_eos" },
	{ CMD_BENCH_SERVE, "json", NULL, NULL, K_FLAG, AT(bench_json), NONE, 0, 0, NULL, NULL, group_this,
	  "print one JSON object, times in seconds" },
	{ CMD_BENCH_SERVE, "seed", "s", NULL, K_INT64, AT(seed), NONE, 0, 9e15, "N", "0", group_this,
	  "of the plan: the same seed sends the same requests at the same times" },
	{ CMD_COMMON | CMD_BENCH_SERVE, "temp", NULL, "temperature", K_DOUBLE, AT(temperature), AT(temperature_set), 0,
	  100, "T", NULL, group_this, "temperature; else the server's" },
	{ CMD_BENCH_SERVE, "user", NULL, NULL, K_TEXT, AT(bench_user), NONE, 0, 0, "NAME", NULL, group_this,
	  "sent as `user`: whom servers that share fairly count the load for" },
	{ CMD_COMMON | CMD_BENCH_SERVE, "api-key", NULL, NULL, K_TEXT, AT(api_key), NONE, 0, 0, "KEY", NULL, group_this,
	  "sent as Authorization: Bearer KEY" },
	{ CMD_BENCH_SERVE, "timeout", NULL, NULL, K_INT, AT(timeout), NONE, 1, 86400, "SECONDS", "600", group_this,
	  "a request on whose connection nothing moves for so long has failed" },

	{ CMD_COMMON | CMD_SERVE, "host", NULL, NULL, K_TEXT, AT(host), NONE, 0, 0, "ADDRESS", "127.0.0.1",
	  group_server, "address to listen on; 0.0.0.0 for all; unix:/PATH for a socket in the file system" },
	{ CMD_COMMON | CMD_SERVE, "port", NULL, NULL, K_INT, AT(port), NONE, 0, 65535, "N", "8080", group_server,
	  "port to listen on; 0: one that is free" },
	{ CMD_SERVE, "port-file", NULL, NULL, K_TEXT, AT(port_file), NONE, 0, 0, "FILE", NULL, group_server,
	  "write the port here once the server answers" },
	{ CMD_COMMON | CMD_SERVE, "alias", "a", NULL, K_TEXTS, AT(alias), NONE, 0, 0, "NAME", NULL, group_server,
	  "the model's name in the API, or several separated by commas; may be given several times; else its own" },
	{ CMD_SERVE, "any-model", NULL, NULL, K_FLAG, AT(any_model), NONE, 0, 0, NULL, NULL, group_server,
	  "answer whatever model a request names" },
	{ CMD_COMMON | CMD_SERVE, "api-key", NULL, NULL, K_TEXT, AT(api_key), NONE, 0, 0, "KEY", NULL, group_server,
	  "ask every client for this key" },
	{ CMD_SERVE, "api-key-file", NULL, NULL, K_TEXT, AT(api_key_file), NONE, 0, 0, "FILE", NULL, group_server,
	  "a line 'NAME KEY' for each client; the name stands in the log, and shares are between names" },
	{ CMD_SERVE, "cors-origin", NULL, NULL, K_TEXT, AT(cors_origin), NONE, 0, 0, "ORIGIN", NULL, group_server,
	  "let pages of this origin ask from a browser; several separated by commas, or * for all" },
	{ CMD_SERVE, "image-folder", NULL, "allowed-local-media-path", K_TEXTS, AT(image_folder), NONE, 0, 0, "DIR",
	  NULL, group_server,
	  "let requests name images below this folder by file: URLs; may be given several times; else none" },
	{ CMD_SERVE, "image-host", NULL, "allowed-media-domains", K_TEXTS, AT(image_host), NONE, 0, 0, "HOST", NULL,
	  group_server,
	  "fetch images that requests name by http: or https: URLs from this host, or HOST:PORT; may be given several times; "
	  "else none are" },
	{ CMD_SERVE, "strict", NULL, NULL, K_FLAG, AT(strict), NONE, 0, 0, NULL, NULL, group_server,
	  "refuse requests with fields that are not known; else a header of the reply lists them" },
	{ CMD_SERVE, "queue", NULL, NULL, K_INT, AT(queue), NONE, 1, 1 << 20, "N", "256", group_server,
	  "requests that may wait; one more is refused" },
	{ CMD_SERVE, "queue-seconds", NULL, NULL, K_DOUBLE, AT(queue_seconds), NONE, 0, 1e6, "SECONDS", "120",
	  group_server, "prompts that may wait, in seconds of computing them at the measured rate; 0: any" },
	{ CMD_SERVE, "max-connections", NULL, NULL, K_INT, AT(connections), NONE, 1, 1 << 20, "N", "1024", group_server,
	  "connections at once" },
	{ CMD_SERVE, "max-body", NULL, NULL, K_SIZE, AT(body_bytes), NONE, 0, 0, "SIZE", "64M", group_server,
	  "largest request body" },
	{ CMD_SERVE, "sse-keep-alive", NULL, NULL, K_INT, AT(keep_alive), NONE, 0, 3600, "SECONDS", "15", group_server,
	  "send a comment in a stream that has been quiet for so long, as in a long prefill; 0: none" },
	{ CMD_SERVE, "response-store-bytes", NULL, NULL, K_SIZE, AT(response_bytes), NONE, 0, 0, "SIZE", "64M",
	  group_server, "memory for answers of /v1/responses that later requests may go on from; 0: keep none" },
	{ CMD_SERVE, "timeout", "to", NULL, K_INT, AT(timeout), NONE, 1, 86400, "SECONDS", "60", group_server,
	  "time for the body of a request to arrive; its header has a sixth of that" },
	{ CMD_SERVE, "client-stall-timeout", NULL, NULL, K_INT, AT(stall), NONE, 1, 86400, "SECONDS", "30",
	  group_server, "a client that leaves its answer unread for so long is given up" },
	{ CMD_SERVE, "idle-timeout", NULL, NULL, K_INT, AT(idle), NONE, 1, 86400, "SECONDS", "75", group_server,
	  "a connection without a request is closed after so long" },
	{ CMD_SERVE, "grace-seconds", NULL, NULL, K_INT, AT(grace), NONE, 0, 86400, "SECONDS", "30", group_server,
	  "after SIGTERM: answers may go on for so long; new requests get 503" },
	{ CMD_SERVE, "watchdog-seconds", NULL, NULL, K_INT, AT(stuck), NONE, 1, 86400, "SECONDS", "120", group_server,
	  "work and no step for so long: /health is 503.  Should be longer than the longest step" },
	{ CMD_SERVE, "turn-replay", NULL, NULL, K_REPLAY, AT(turn_replay), NONE, 0, 0, "off|text|all", "all",
	  group_server,
	  "answers that clients send back rewritten are taken as they were; text: but for their thinking" },
	{ CMD_SERVE, "turn-memory", NULL, NULL, K_SIZE, AT(turn_bytes), NONE, 0, 0, "SIZE", "64M", group_server,
	  "memory for the answers that this needs" },
	{ CMD_SERVE, "drop-volatile-lines", NULL, NULL, K_FLAG, AT(drop_volatile), NONE, 0, 0, NULL, NULL, group_server,
	  "leave lines out of system messages that change with every request and mean nothing, as Claude Code's billing header" },
	{ CMD_SERVE, "log-prompts", NULL, NULL, K_FLAG, AT(log_prompts), NONE, 0, 0, NULL, NULL, group_server,
	  "log the text of every prompt; else it is in no log" },

	{ CMD_COMMON | CMD_CHAT, "temp", NULL, "temperature", K_DOUBLE, AT(temperature), AT(temperature_set), 0, 100,
	  "T", NULL, group_answer,
	  "temperature; 0: always the likeliest token.  Else what the checkpoint suggests, or 1" },
	{ CMD_CHAT, "top-p", NULL, NULL, K_DOUBLE, AT(top_p), AT(top_p_set), 0, 1, "P", NULL, group_answer,
	  "keep the likeliest tokens up to this share.  Else the checkpoint's, or 1 (all)" },
	{ CMD_CHAT, "top-k", NULL, NULL, K_INT, AT(top_k), AT(top_k_set), 0, INT_MAX, "K", NULL, group_answer,
	  "keep the K likeliest tokens.  Else the checkpoint's, or 0 (all)" },
	{ CMD_CHAT, "min-p", NULL, NULL, K_DOUBLE, AT(min_p), AT(min_p_set), 0, 1, "P", NULL, group_answer,
	  "drop tokens less likely than P times the likeliest.  Else the checkpoint's, or 0 (off)" },
	{ CMD_CHAT, "repetition-penalty", NULL, "repeat-penalty", K_DOUBLE, AT(repetition_penalty), AT(repetition_set),
	  0, 100, "X", NULL, group_answer,
	  "divides the score of tokens seen before.  Else the checkpoint's, or 1 (off)" },
	{ CMD_CHAT, "presence-penalty", NULL, NULL, K_DOUBLE, AT(presence_penalty), NONE, -2, 2, "X", "0", group_answer,
	  "taken from the score of tokens used in the answer" },
	{ CMD_CHAT, "frequency-penalty", NULL, NULL, K_DOUBLE, AT(frequency_penalty), NONE, -2, 2, "X", "0",
	  group_answer, "the same, for each use" },
	{ CMD_CHAT, "max-tokens", "n", "predict n-predict", K_INT, AT(max_tokens), NONE, -1, INT_MAX, "N", "-1",
	  group_answer, "longest answer in tokens; -1: until the context ends" },
	{ CMD_CHAT, "seed", "s", NULL, K_INT64, AT(seed), NONE, -1, 9e15, "N", "-1", group_answer,
	  "of the random numbers; -1: a new one for each answer" },
	{ CMD_COMMON | CMD_CHAT, "think", NULL, NULL, K_THINK, AT(think), NONE, 0, 0, "on|off", NULL, group_answer,
	  "let the model think before it answers, where its template can; else the template decides" },
	{ CMD_CHAT, "chat-template", NULL, "chat-template-file", K_TEXT, AT(template_file), NONE, 0, 0, "FILE", NULL,
	  group_answer, "Jinja template to use instead of the model's" },
	{ CMD_CHAT, "chat-template-args", NULL, "chat-template-kwargs", K_TEXT, AT(template_args), NONE, 0, 0, "JSON",
	  NULL, group_answer, "object of further variables for the template, as {\"enable_thinking\": false}" },

	{ CMD_ALL & ~CMD_INSPECT, "model", "m", NULL, K_TEXT, AT(model), NONE, 0, 0, "MODEL", NULL, group_model,
	  "the same as the argument MODEL" },
	{ CMD_COMMON | CMD_PPL, "ctx-size", "c", "max-model-len", K_INT, AT(ctx_size), NONE, 0, INT_MAX, "N", "0",
	  group_model, "longest piece of a text that is read at once; 0: 2048, or as the model allows" },
	{ CMD_COMMON | ((CMD_ENGINE & ~(CMD_BENCH | CMD_PPL)) | CMD_INSPECT), "ctx-size", "c", "max-model-len", K_INT,
	  AT(ctx_size), NONE, 0, INT_MAX, "N", "0", group_model,
	  "longest sequence in tokens, answer included; 0: as the model allows" },
	{ CMD_COMMON | CMD_SERVE | CMD_INSPECT, "parallel", "np", "max-num-seqs", K_INT, AT(parallel), NONE, 1, 1024,
	  "N", "8", group_model, "sequences computed at once; others wait" },
	{ CMD_COMMON | CMD_ENGINE | CMD_QUANTIZE, "threads", "t", NULL, K_INT, AT(threads), NONE, 0, 1024, "N", "0",
	  group_model, "compute threads; 0: one per processor" },
	{ CMD_ENGINE, "prefill-step-size", NULL, "ubatch-size", K_INT, AT(step_rows), NONE, 0, 65536, "N", "0",
	  group_model, "most tokens computed in one step; 0: 256, with a mixture of experts 1024" },
	{ CMD_SERVE, "decode-gap-ms", NULL, NULL, K_INT, AT(decode_gap), NONE, 1, 60000, "MS", "100", group_model,
	  "while prompts are computed, running answers get a token at least so often (or one decode step, where that is longer)" },
	{ CMD_SERVE, "answer-reserve", NULL, NULL, K_INT, AT(answer_reserve), NONE, 1, INT_MAX, "N", "512", group_model,
	  "tokens of an answer that memory is set aside for before it starts; longer answers take what is free, and may "
	  "have to wait for it half way.  A large N: never" },
	{ CMD_SERVE | CMD_RUN | CMD_LOGITS | CMD_BENCH, "lora", NULL, "lora-modules", K_TEXTS, AT(lora), NONE, 0, 0,
	  "NAME=PATH[,SCALE]", NULL, group_model,
	  "load an adapter (LoRA: a GGUF file, or a folder of PEFT's); may be given several times.  A server's requests name it; elsewhere all are added" },
	{ CMD_SERVE | CMD_RUN | CMD_LOGITS | CMD_INSPECT, "mmproj", "mm", NULL, K_TEXT, AT(mmproj), NONE, 0, 0, "FILE",
	  NULL, group_model,
	  "file with the tower that reads images for a GGUF model.  Else the one *mmproj*.gguf beside the model; none: no "
	  "tower" },
	{ CMD_COMMON | CMD_ENGINE, "memory", NULL, NULL, K_SIZE, AT(memory_bytes), NONE, 0, 0, "SIZE", "0", group_model,
	  "memory for everything, the mapped weights included; what is left open below is shared out of it.  0: as below" },
	{ CMD_COMMON | CMD_ENGINE | CMD_INSPECT, "expert-memory", NULL, NULL, K_SIZE, AT(expert_bytes), NONE, 0, 0,
	  "SIZE", "0", group_model,
	  "memory for the experts of a mixture; the others are read from disk when they are used.  Answers are the same.  0: "
	  "for all of them, or what the rest leaves of --memory or the machine" },
	{ CMD_ENGINE, "expert-dir", NULL, NULL, K_TEXT, AT(expert_dir), NONE, 0, 0, "DIR", NULL, group_model,
	  "with experts on disk: folder for a copy of them that is read faster, made once.  Else they are read from the model" },
	{ CMD_ENGINE, "expert-trace", NULL, NULL, K_TEXT, AT(expert_trace), NONE, 0, 0, "FILE", NULL, group_model,
	  "with experts on disk: write which experts each layer of each step used (docs/experts-from-disk.md)" },
	{ CMD_ENGINE, "expert-io", NULL, NULL, K_TEXT, AT(expert_io), NONE, 0, 0, "auto|io_uring|threads", NULL,
	  group_model, "how experts are read; auto: by io_uring where the system allows it" },
	{ CMD_ENGINE | CMD_INSPECT, "tables", NULL, NULL, K_TABLES, AT(tables), NONE, 0, 0, "auto|memory|disk", "auto",
	  group_model,
	  "where embeddings are of which a step looks up a few rows: in memory, or on disk, from where the rows are read.  Answers "
	  "are the same.  auto: on disk where the model does not fit into memory beside the rest" },
	{ CMD_SERVE | CMD_RUN | CMD_BENCH, "no-huge-pages", NULL, NULL, K_FLAG, AT(small_pages), NONE, 0, 0, NULL, NULL,
	  group_model,
	  "leave the weights where the system maps them.  Else, where all that is planned fits into what memory is available, they "
	  "are laid out for the processor and moved to huge pages in the background, which makes steps shorter" },
	{ (CMD_ENGINE & ~CMD_BENCH) | CMD_INSPECT, "kv-bytes", NULL, NULL, K_SIZE, AT(kv_bytes), NONE, 0, 0, "SIZE",
	  "0", group_model,
	  "memory for keys and values; 0: what --parallel sequences of --ctx-size and kept prefixes need, at most a quarter of the machine's" },
	{ CMD_COMMON | CMD_ENGINE | CMD_INSPECT, "kv-bits", NULL, NULL, K_TEXT, AT(kv_ask.bits), NONE, 0, 0, "N", NULL,
	  group_model,
	  "bits of a number in keys and values: 16 (bf16), 8, 4, 3.5, 3, 2.5 or 2; of a half, keys get the lower and values "
	  "the higher.  Default: 16.  Drafters' own stay at 16" },
	{ CMD_ENGINE | CMD_INSPECT, "kv-key-bits", NULL, NULL, K_TEXT, AT(kv_ask.key_bits), NONE, 0, 0, "N", NULL,
	  group_model, "of keys alone: 16, 8, 4, 3 or 2" },
	{ CMD_ENGINE | CMD_INSPECT, "kv-value-bits", NULL, NULL, K_TEXT, AT(kv_ask.value_bits), NONE, 0, 0, "N", NULL,
	  group_model, "of values alone" },
	{ CMD_ENGINE | CMD_INSPECT, "kv-quant-scheme", NULL, NULL, K_TEXT, AT(kv_ask.scheme), NONE, 0, 0,
	  "auto|uniform|turboquant", NULL, group_model,
	  "how: steps of one size between the ends of a group (8, 4 bits), or a "
	  "rotation and a codebook (4, 3, 2).  Default auto: uniform at 8 bits, else turboquant" },
	{ CMD_ENGINE | CMD_INSPECT, "kv-group-size", NULL, NULL, K_INT, AT(kv_ask.group), NONE, 1, 4096, "N", NULL,
	  group_model, "uniform: numbers that share a step.  Default: 64, or 32 where heads ask for it" },
	{ CMD_ENGINE | CMD_INSPECT, "kv-skip-layers", NULL, NULL, K_TEXT, AT(kv_ask.skip), NONE, 0, 0, "LIST", NULL,
	  group_model,
	  "attention layers, counted from 0, that stay at 16 bits: first, last, numbers, as first,3,last; or none.  Default: none" },
	{ CMD_SERVE | CMD_RUN, "prompt-cache-bytes", NULL, NULL, K_SIZE, AT(prefix_bytes), NONE, 0, 0, "SIZE", NULL,
	  group_model, "memory for kept prompt prefixes; 0: keep none.  Default: a quarter of what the model leaves" },
	{ CMD_COMMON | CMD_SERVE | CMD_RUN, "prompt-cache-dir", NULL, NULL, K_TEXT, AT(disk_dir), NONE, 0, 0, "DIR",
	  NULL, group_model,
	  "folder for kept prompt prefixes, so that they outlive memory and the program; it holds what prompts say" },
	{ CMD_SERVE | CMD_RUN, "prompt-cache-disk-bytes", NULL, NULL, K_SIZE, AT(disk_bytes), NONE, 0, 0, "SIZE", "20G",
	  group_model, "with --prompt-cache-dir: size of the folder" },
	{ CMD_SERVE | CMD_RUN, "prompt-cache-disk-wait", NULL, NULL, K_DOUBLE, AT(disk_wait), NONE, 0, 3600, "SECONDS",
	  "0", group_model,
	  "with --prompt-cache-dir: longest that a prompt waits for what the folder has of it; 0: as long as computing would take" },
	{ CMD_SERVE, "verify-cache", NULL, NULL, K_DOUBLE, AT(verify_cache), NONE, 0, 1, "P", "0", group_model,
	  "compute this share of the prefixes that were reused again when idle, and compare byte for byte" },
	{ CMD_CHAT, "draft-kind", NULL, NULL, K_DRAFT, AT(draft_kind), NONE, 0, 0, "none|ngram|grammar|model|head|auto",
	  "auto", group_model,
	  "who guesses ahead: nobody, a search in the text, what the form of an answer leaves open, --draft-model, a draft head (of --draft-model, "
	  "or else the model's own), or all there are.  Answers are the same; they come faster" },
	{ CMD_LOGITS, "draft", NULL, "draft-kind", K_DRAFT, AT(draft_kind), NONE, 0, 0,
	  "none|ngram|grammar|model|head|auto", "none", group_this,
	  "who guesses ahead while decoding; changes no bit" },
	{ CMD_BENCH, "draft-kind", NULL, NULL, K_DRAFT, AT(draft_kind), NONE, 0, 0,
	  "none|ngram|grammar|model|head|auto", "none", group_model,
	  "decode with this guessing ahead as well, and say how much faster that is" },
	{ CMD_COMMON | (CMD_ENGINE & ~CMD_PPL), "draft-model", "md", NULL, K_TEXTS, AT(draft_model), NONE, 0, 0,
	  "MODEL", NULL, group_model,
	  "smaller model with the same tokens, or a folder with a draft head (MTP, EAGLE-3, DFlash, DSpark, Gemma 4's assistant), to guess ahead with; may be given for one of "
	  "each kind" },
	{ CMD_ENGINE & ~CMD_PPL, "num-draft-tokens", NULL, "draft-max draft", K_INT, AT(n_draft), NONE, 0, 16, "N", "8",
	  group_model, "most tokens guessed ahead per step; fewer where they do not pay" },
	{ CMD_SERVE | CMD_RUN | CMD_BENCH, "draft-fixed", NULL, NULL, K_FLAG, AT(draft_fixed), NONE, 0, 0, NULL, NULL,
	  group_model, "for measuring: always guess --num-draft-tokens ahead, whether it pays or not" },
	{ CMD_SERVE | CMD_RUN | CMD_BENCH, "draft-pretend", NULL, "synthetic-acceptance", K_DOUBLE, AT(draft_pretend),
	  NONE, 0, 1, "SHARE", "0", group_model,
	  "for planning: take this share of guesses for right.  What is answered then means nothing" },
	{ CMD_ENGINE, "cpu", NULL, NULL, K_CPU, AT(cpu), NONE, 0, 0, "LEVEL", NULL, group_model,
	  "use no newer instructions than scalar, avx2, avxvnni, avx512, avx512bf16 or amx; else what is fastest on this "
	  "processor" },
	{ CMD_ENGINE, "arith", NULL, NULL, K_ARITH, AT(arith), NONE, 0, 0, "f32|fast", "fast", group_model,
	  "f32: reference arithmetic; fast: what serving uses" },

	{ CMD_COMMON | CMD_ALL, "config", NULL, NULL, K_TEXT, AT(config), NONE, 0, 0, "FILE", NULL, group_all,
	  "options from a file, a line 'name = value' for each; # begins a comment.  The variable WEFT_NAME (--kv-bits: "
	  "WEFT_KV_BITS) counts more than the file, and the command line more than both" },
	{ CMD_ALL, "log-level", NULL, NULL, K_LOG, AT(log_level), NONE, 0, 0, "LEVEL", NULL, group_all,
	  "error, warn, info or debug, to standard error.  Default: info for `serve`, else warn" },
	{ CMD_ALL, "log-format", NULL, NULL, K_LOG_FORMAT, AT(log_format), NONE, 0, 0, "text|json", NULL, group_all,
	  "json: one object for each line (default text)" },
	{ CMD_COMMON | CMD_ALL | CMD_COMPLETION | CMD_MAN, "help", "h", NULL, K_HELP, AT(help), NONE, 0, 0, "[all]",
	  NULL, group_all, "the options that people need most; all: every one" },
};
const int n_options = sizeof(option_table) / sizeof(option_table[0]);
_Static_assert(sizeof(option_table) / sizeof(option_table[0]) < OPTION_MAX, "OPTION_MAX is too small");

/* ---- options that would do nothing ---- */

static bool no_folder(const struct options *o)
{
	return !o->disk_dir;
}
static bool no_url(const struct options *o)
{
	return !o->url;
}
static bool url(const struct options *o)
{
	return o->url != NULL;
}
static bool url_args(const struct options *o)
{
	return o->url && o->template_args;
}
static bool no_store(const struct options *o)
{
	return !o->prefix_bytes;
}
static bool no_replay(const struct options *o)
{
	return o->turn_replay == REPLAY_OFF;
}
static bool no_draft(const struct options *o)
{
	return o->draft_kind == DRAFT_NONE && o->n_draft;
}
static bool no_bench_draft(const struct options *o)
{
	return no_draft(o) && !o->draft_model.n && o->draft_pretend == 0;
}
static bool no_tokens(const struct options *o)
{
	return !o->n_draft;
}
static bool pretends(const struct options *o)
{
	return o->draft_pretend > 0;
}
static bool no_images(const struct options *o)
{
	return !o->images.n;
}
static bool no_prefixes(const struct options *o)
{
	return !o->bench_prefixes;
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
	return all_zero(&o->bench_output);
}
static bool paired(const struct options *o)
{
	return o->bench_paired != NULL;
}

/* An option that was given and cannot have an effect beside the others is a mistake of the
 * user, and refused.  (load.c and others refuse the cases that need a closer look.)
 * Options of what `bench` measures are not refused: scripts go through batches and depths, 0 and 1 among them. */
static const struct idle {
	unsigned commands;
	const char *names; /* options, separated by spaces; NULL: ... */
	const char *group; /* ... all of a group but the model */
	bool (*is)(const struct options *o);
	const char *why; /* after "does nothing " */
} idle[] = {
	{ CMD_SERVE | CMD_RUN, "prompt-cache-disk-bytes prompt-cache-disk-wait", NULL, no_folder,
	  "without --prompt-cache-dir" },
	{ CMD_SERVE, "verify-cache", NULL, no_store, "with --prompt-cache-bytes 0" },
	{ CMD_SERVE, "turn-memory", NULL, no_replay, "with --turn-replay off" },
	{ CMD_RUN, "api-key", NULL, no_url, "without --url" },
	{ CMD_RUN, "chat-template", NULL, url, "with --url: the server has the template" },
	{ CMD_RUN, "think", NULL, url_args,
	  "with --url beside --chat-template-args; enable_thinking can be one of those" },
	{ CMD_RUN, NULL, group_model, url, "with --url: the server has the model" },
	{ CMD_RUN | CMD_LOGITS, "mmproj", NULL, no_images, "without --image" },
	{ CMD_CHAT | CMD_LOGITS, "num-draft-tokens draft-fixed draft-pretend", NULL, no_draft,
	  "while nobody guesses ahead (--draft-kind none)" },
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
			                 (op->group == d->group && op->at != AT(model))))
				return err_set(err, E_ARG, "--%s does nothing %s", op->name, d->why);
		}
	}
	return 0;
}
