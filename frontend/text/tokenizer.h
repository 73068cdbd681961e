/* Text to token ids and back, as a tokenizer.json of Hugging Face's package `tokenizers` says.
 *
 * The ids and texts are those of that package: models BPE, WordPiece, WordLevel and Unigram, with the normalizers,
 * pre-tokenizers, post-processors, decoders and added tokens that it has. What a file contains beyond that is refused
 * by name. Its members "truncation" and "padding" are not applied (transformers does not apply them either). Chat
 * templates are not read.
 *
 * A tokenizer keeps the words that it has encoded: one thread at a time may use it.
 *
 *   parts.c, normalize.c, pretokenize.c, process.c, decode.c    the parts of a file, a table of types in each
 *   model.c, model_tokens.c, bpe.c, wordpiece.c, unigram.c      words to ids
 *   vocabulary.c, added.c, prefixes.c                           tokens, and where they are found in a text
 *   pattern.c, expression.c, unicode.c, charsmap.c              regular expressions and characters
 *   stream.c                                                    ids to text, one by one
 *   absent.c                                                    all of this in a rankc without PCRE2 or utf8proc
 */
#ifndef FRONTEND_TEXT_TOKENIZER_H
#define FRONTEND_TEXT_TOKENIZER_H

#include <stdbool.h>

#include "frontend/text/token_ids.h"
#include "ir/base/diag.h"
#include "ir/base/str.h"

struct tokenizer;

/* Reads tokenizer.json. NULL after a diagnostic at the path and the member of the file: E0397 for one that is malformed
 * (EXIT_MALFORMED), E0440 for what is not supported, which is everything if rankc was built without PCRE2 or utf8proc
 * (EXIT_UNSUPPORTED), E0601 if the file cannot be read. The tokenizer lives in the arena. */
struct tokenizer *tokenizer_open(struct arena *arena, struct diags *diags, const char *path);

/* Appends the ids of a text to `ids`, in the arena; `special` adds the special tokens that the post-processor of the
 * file has around it. Special tokens in the text are found in any case. Bytes that are not UTF-8 are read as U+FFFD,
 * one for each maximal part of a character, as Python's bytes.decode(errors="replace") does. -1 after a diagnostic:
 * E0397 for a character that the model has no token for, E0507 for a text whose splitting takes too long or which
 * becomes longer than 256 MiB. */
int tokenizer_encode(struct tokenizer *tokenizer, struct arena *arena, struct diags *diags, const char *text,
                     size_t bytes, bool special, struct token_ids *ids);

/* The text of ids: valid UTF-8 in the arena, followed by a NUL; *bytes, if not NULL, is its length. Bytes that make no
 * character become U+FFFD. Ids without a token add nothing, nor do special tokens with skip_special. NULL after a
 * diagnostic (E0507). */
const char *tokenizer_decode(struct tokenizer *tokenizer, struct arena *arena, struct diags *diags, const int32_t *ids,
                             int n, bool skip_special, size_t *bytes);

/* The token of an id, NULL: none; as the vocabulary has it, "\u0120the" rather than " the". */
const char *tokenizer_token(const struct tokenizer *tokenizer, int32_t id);

/* True for a token that skip_special leaves out. */
bool tokenizer_is_special(const struct tokenizer *tokenizer, int32_t id);

/* Ids to text one by one, as DecodeStream of `tokenizers` gives it: a push appends to `text` what has become certain,
 * which may be nothing while the bytes of a character are incomplete; finish appends the rest, where an incomplete
 * character is U+FFFD. Together they are the text of all ids, but where bytes follow a character that was given and
 * make it invalid (decoder ByteFallback): there the character stays. 0, or -1 as for tokenizer_decode. */
struct token_stream;
struct token_stream *token_stream_open(struct tokenizer *tokenizer, struct arena *arena, bool skip_special);
int token_stream_push(struct token_stream *stream, struct diags *diags, int32_t id, struct strbuf *text);
int token_stream_finish(struct token_stream *stream, struct diags *diags, struct strbuf *text);

#endif
