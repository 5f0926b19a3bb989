/* gguf_pre.c - see gguf_pre.h.
 *
 * Expressions are those of the tokenizers' authors, as tokenizer.json has them;
 * where llama.cpp, which made the names, reads one otherwise (cases of ASCII letters
 * alone, marks), so does the expression here, since the ids are the file's promise. */
#include "store/gguf/gguf_pre.h"

#include <stddef.h>
#include <string.h>

/* 's 't 're 've 'm 'll 'd in any case. */
#define SHORT "'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"
#define REST "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define WORDS(digits) SHORT "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" REST
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)"
/* Letters in two classes, so that a word is cut where capitals begin. */
#define UPPER "(?:(?![a-z])\\p{L})"
#define LOWER "(?:(?![A-Z])\\p{L})"
#define CASED(tail, digits)                                                                                  \
	"[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" tail "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" tail \
	"|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" REST
#define MARKED(tail, digits)                                                                                       \
	"[^\\r\\n\\p{L}\\p{N}]?(?:" UPPER "|\\p{M})*(?:" LOWER "|\\p{M})+" tail "|[^\\r\\n\\p{L}\\p{N}]?(?:" UPPER \
	"|\\p{M})+(?:" LOWER "|\\p{M})*" tail "|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" REST
#define DEEPSEEK3                                                                                           \
	"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+" \
	"| ?[\\p{P}\\p{S}]+[\\r\\n]*" REST
#define CJK "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+"
#define HAN_TO_HANGUL "[\\x{4e00}-\\x{9fa5}\\x{0800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"
/* Brackets, bars and full stops of many scripts. */
#define POROS " ?[^(\\s|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{0964}\\x{06d4}\\x{060c})]+"

/* Letters of scripts with cases. */
#define CASE_LETTERS "[\\p{Lu}\\p{Ll}\\p{Lt}]"
/* The gpt-4o shape with marks as both kinds of letters. */
#define O200K(digits, tail, last)                                                                                    \
	"[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+" tail             \
	"|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*" tail "|" digits \
	"| ?[^\\s\\p{L}\\p{N}]+[\\r\\n" last "]*" REST
/* The gpt-4o shape in which runs of Han characters are words of their own. */
#define KIMI(marks)                                                                          \
	"\\p{Han}+|[^\\r\\n\\p{L}\\p{N}]?(?:(?!\\p{Han})[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}" marks \
	"])*(?:(?!\\p{Han})[\\p{Ll}\\p{Lm}\\p{Lo}" marks "])+(?:" SHORT ")?"                 \
	"|[^\\r\\n\\p{L}\\p{N}]?(?:(?!\\p{Han})[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}" marks          \
	"])+(?:(?!\\p{Han})[\\p{Ll}\\p{Lm}\\p{Lo}" marks "])*(?:" SHORT ")?"                 \
	"|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" REST
/* Runs of Korean, of East Asian punctuation, of Bopomofo, of Han and Kana. */
#define YOUTU                                                                                                                                   \
	"[\\x{ac00}-\\x{d7a3}\\x{3131}-\\x{318e}]+|[\\x{ff01}\\x{2026}\\x{201c}\\x{201d}\\x{2018}\\x{2019}\\x{2014}\\x{ff1a}\\x{ff1b}\\x{ff0c}" \
	"\\x{3001}-\\x{303f}\\x{fe30}-\\x{fe4f}]+|[\\x{3105}-\\x{312f}]+|[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+"
#define ASIAN                                                                                                                                    \
	"[\\x{4e00}-\\x{9fff}\\x{3400}-\\x{4dbf}\\x{f900}-\\x{faff}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}\\x{ff65}-\\x{ff9f}\\x{2f00}-\\x{2fdf}" \
	"\\x{0e40}-\\x{0e7f}\\x{0e80}-\\x{0eff}\\x{1780}-\\x{17ff}\\x{1000}-\\x{109f}\\x{aa60}-\\x{aa7f}\\x{a9e0}-\\x{a9ff}\\x{ac00}-\\x{d7af}\\x{1100}-\\x{11ff}]+"
/* Three digits at a time, counted from the right. */
#define THREES "\\p{N}{1,3}(?=(?:\\p{N}{3})*(?!\\p{N}))"

static const struct gguf_pre table[] = {
	{ "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral lfm2 midm-2.0 jina-v5-nano",
	  { WORDS("\\p{N}{1,3}") },
	  true,
	  true },
	{ "dbrx smaug-bpe chatglm-bpe glm4", { WORDS("\\p{N}{1,3}") }, false, false },
	{ "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2",
	  { WORDS("\\p{N}") },
	  false,
	  false },
	{ "qwen35",
	  { SHORT "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" REST },
	  false,
	  false },
	{ "gpt-2 phi-2 jina-es jina-de jina-v1-en jina-v2-es jina-v2-de jina-v2-code roberta-bpe mellum gigachat a.x-4.0 exaone4 "
	  "modern-bert mpt olmo jais trillion granite-docling",
	  { GPT2 },
	  false,
	  false },
	{ "starcoder refact command-r smollm codeshell exaone minerva-7b mellum2", { "\\p{N}", GPT2 }, false, false },
	{ "default", { "[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]" }, false, false },
	{ "falcon", { "[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]" }, false, false },
	{ "gpt-4o llama4 kanana2 talkie minimax-m2", { CASED("(?:" SHORT ")?", "\\p{N}{1,3}") }, false, false },
	{ "tekken", { CASED("", "\\p{N}") }, true, true, .meant = O200K("\\p{N}", "", "/") },
	{ "deepseek-coder", { "[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", HAN_TO_HANGUL, "\\p{N}" }, false, false },
	{ "deepseek-v3 hunyuan-dense joyai-llm", { "\\p{N}{1,3}", CJK, DEEPSEEK3 }, false, false },
	{ "poro-chat bloom gpt3-finnish", { POROS }, false, false },
	{ "viking", { POROS, "\\p{N}" }, false, false },
	{ "bailingmoe bailingmoe2 llada-moe",
	  { "'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"
	    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+" },
	  false,
	  false },
	{ "seed-coder",
	  { SHORT "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}\\r\\n]+" REST },
	  false,
	  false },
	{ "jais-2",
	  { SHORT
	    "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s{512}(?!\\S)"
	    "|\\s{256}(?!\\S)|\\s{128}(?!\\S)|\\s{64}(?!\\S)|\\s{32}(?!\\S)|\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)"
	    "|\\s{1,2}(?!\\S)|\\s{1}" },
	  false,
	  false },
	{ "exaone-moe",
	  { SHORT "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?"
	          "|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+" },
	  false,
	  false },
	{ "minicpm5", { "\\p{N}{1,3}", WORDS("\\p{N}+") }, true, false },
	{ "tiny_aya cohere2moe",
	  { "[0-9]{1,3}(?=(?:[0-9]{3})*(?![0-9A-Za-z_]))", O200K("\\p{N}{1,3}", "(?:" SHORT ")?", "/") },
	  false,
	  false },
	{ "superbpe", { "\\p{N}+", THREES }, false, false },
	{ "deepseek-llm",
	  { "[\\r\\n]", "\\s?" CASE_LETTERS "+",
	    "\\s?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+", "\\s+$",
	    HAN_TO_HANGUL, "\\p{N}+" },
	  false,
	  false },
	{ "youtu", { YOUTU, O200K("\\p{N}", "(?:" SHORT ")?", "/") }, true, false },
	{ "kimi-k2", { KIMI("") }, false, false, .meant = KIMI("\\p{M}") },
	{ "afmoe", { THREES, ASIAN, DEEPSEEK3 }, false, false },
	{ "chameleon",
	  { "<sentinel:[0-9]+>|(?:IMGIMG)(?:(?:A|B|C|D|E|F|G|H|I){1,4})Z", "(?:[\\t\\n]|    |  )", "\\p{N}",
	    "[\\p{P}!-/:-@\\[-`{-~]", GPT2 },
	  false,
	  true },

	{ "laguna", { "[^\\n]+|[\\n]+", WORDS("\\p{N}") }, false, false },
	{ "granite-embed-multi-97m", { MARKED("(?:" SHORT ")?", "\\p{N}{1,3}") }, true, false },
};

const struct gguf_pre *gguf_pre_find(const char *name, int n)
{
	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		for (const char *p = table[i].names; *p; p += strspn(p, " ")) {
			size_t len = strcspn(p, " ");

			if (len == (size_t)n && !memcmp(p, name, len))
				return &table[i];
			p += len;
		}
	return NULL;
}

const char GGUF_PRE_BYTE_LEVEL[] = GPT2;
const char GGUF_PRE_KIMI[] = KIMI("\\p{M}");

/* Whether `theirs` is `ours`, where Hugging Face's files say "in any case" with a flag. */
static bool same_step(const char *ours, const char *theirs)
{
	static const char flagged[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
	size_t n = strlen(SHORT);

	while (*theirs)
		if (!strncmp(theirs, flagged, sizeof flagged - 1) && !strncmp(ours, SHORT, n)) {
			theirs += sizeof flagged - 1;
			ours += n;
		} else if (*theirs++ != *ours++) {
			return false;
		}
	return !*ours;
}

static bool same_steps(const struct gguf_pre *pre, const char *const *step, int n)
{
	for (int i = 0; i < n; i++)
		if (!pre->step[i] || !same_step(pre->step[i], step[i]))
			return false;
	return n == GGUF_PRE_STEPS || !pre->step[n];
}

const char *gguf_pre_name(const char *const *step, int n, bool whole_first, int *length, bool *other)
{
	for (size_t i = 0; n && i < sizeof table / sizeof *table; i++) {
		const struct gguf_pre *pre = &table[i];

		if (pre->whole_first != whole_first)
			continue;
		*other = pre->meant && n == 1 && same_step(pre->meant, step[0]);
		if (*other || same_steps(pre, step, n)) {
			*length = (int)strcspn(pre->names, " ");
			return pre->names;
		}
	}
	return NULL;
}
