/* gguf_projector.h - a projector file ("mmproj-*.gguf"): the tower of a model whose text is in another GGUF file.  Inside
 * src/store/.
 *
 * general.architecture is "clip"; keys are clip.vision.*, tensors v.* and mm.*.  clip.projector_type says what it is; each
 * type that is read has a line of names and a writer of `vision_config` in gguf_projector_forms.c.  A tower for sounds in the
 * same file has clip.audio.*, a.* and mm.a.*.  What the tower of a folder has, a projector has under Hugging Face's names: no
 * tower knows which it reads. */
#ifndef STORE_GGUF_PROJECTOR_H
#define STORE_GGUF_PROJECTOR_H

#include "store/gguf/gguf_conf.h"

enum { PROJECTOR_ARCHS = 4, PROJECTOR_MARKS = 4 };

/* Behind "v.blk.N.", "v.deepstack.N." or whole.  One that ends with a dot stands for every tensor that begins so, and hf for
 * what is put in place of that beginning.  hf NULL: its elements are listed with another tensor. */
struct projector_name {
	const char *gguf, *hf;
	const struct gguf_fix *fix;
};

/* A tower for sounds, in the file of the tower for images: tensors a.* and mm.a.* */
struct projector_ear {
	const char *type;  /* clip.audio.projector_type */
	const char *block; /* as a form's, with "a.blk.N." in the file; NULL: there are none, and block_count is 0 */
	const struct projector_name *top, *in_block;
	void (*audio)(struct gguf_conf *c); /* members of audio_config; c reads clip.audio */
};

struct projector_form {
	const char *type;     /* clip.projector_type */
	const char *shown_by; /* a tensor that tells it from a form of the same type behind it; NULL: there is none */
	/* Models that it is of: the architecture of their file; model_type of the whole, and of the text where that is not the
	 * architecture's own. */
	struct {
		const char *arch, *whole, *text;
	} of[PROJECTOR_ARCHS];
	const char *block; /* "model.visual.blocks.": the number of the block and a dot follow */
	const struct projector_name *top, *in_block;
	bool flat;      /* there are no blocks, and block_count is 0 */
	bool old_names; /* files from before 2025 call the way up of an MLP down, and the other way round */
	/* Tokens by their text, of which the first stands for a row of an image; and the members of config.json that have their
	 * ids.  One that `sound` is set of is left out where the projector has nothing for sounds. */
	struct {
		const char *text, *member;
		bool sound;
	} token[PROJECTOR_MARKS];
	const struct projector_ear *ear; /* that it may have; NULL: sounds are not read */
	/* Members of vision_config, of config.json around it, and of text_config; the last two may be NULL.  c reads the keys
	 * of the projector, text those of the model. */
	void (*vision)(struct gguf_conf *c);
	void (*around)(struct gguf_conf *c);
	void (*text)(struct gguf_conf *text);
	/* Members of preprocessor_config.json; NULL: mean and deviation as the file has them. */
	void (*processor)(struct gguf_conf *c);
};
extern const struct projector_form projector_forms[]; /* ends with .type NULL */

struct gguf_projector {
	struct gguf g;
	struct gguf_model m; /* keys of c are those of clip.vision */
	const struct projector_form *form;
	struct gguf_model sound;         /* keys of c are those of clip.audio */
	const struct projector_ear *ear; /* NULL: it has none, or one that is not read */
	int which;                       /* of form->of */
	int32_t token[PROJECTOR_MARKS];  /* -1: left out */
	struct gguf_tensor **t;
	size_t n;
};

/* The one projector file next to the model at path, in a; NULL: there is none, or there are several, which is logged. */
const char *projector_beside(const char *path, struct arena *a);
/* Opens it, checks that it is one for the model text, and lists its tensors.  To be closed also after an error. */
int projector_open(struct gguf_projector *p, const char *path, const struct gguf_model *text, struct arena *a,
                   struct err *err);
void projector_close(struct gguf_projector *p);

/* preprocessor_config.json */
int projector_processor(const struct gguf_projector *p, struct buf *out, struct err *err);

#endif
