/* errors.c - the library's errors as Python exceptions, with the names that Python has for things. */
#include "core.h"

#include <ctype.h>
#include <string.h>

static PyObject *exception_of(raffle_status status) {
    switch (status) {
    case RAFFLE_E_MEMORY: return PyExc_MemoryError;
    case RAFFLE_E_DEVICE: return PyExc_RuntimeError; /* what the GPU reports, as in other packages */
    default: return PyExc_ValueError;
    }
}

typedef struct renamed {
    const char *c, *python;
} renamed;

/* Fields that a sentence begins with. */
static const renamed first_words[] = {
    {"row_index", "index"},
    {"params.flags", "flags"},
    {"extra.flags", "flags"},
    {"state.vocab", "vocab"},
    {"state.history_max", "history_max"},
    {"bias_id", "logit_bias"},
    {"bias", "logit_bias"},
    {"allowed", "allowed_token_ids"},
    {"banned", "banned_token_ids"},
    {"stop", "stop_token_ids"},
    {"breaker", "dry_sequence_breaker_ids"},
    {"bad_words", "bad_words_token_ids"},
    {"repetition", "repetition_penalty"},
    {"frequency", "frequency_penalty"},
    {"presence", "presence_penalty"},
    {"penalty_window", "repeat_last_n"},
    {"no_repeat_ngram", "no_repeat_ngram_size"},
    {"dry_allowed", "dry_allowed_length"},
    {"dry_range", "dry_penalty_last_n"},
    {"epsilon", "epsilon_cutoff"},
    {"eta", "eta_cutoff"},
    {"keep_least", "min_tokens_to_keep"},
};

/* Names that can be anywhere in it. */
static const renamed names[] = {
    {"params.state is NULL", "give prompt_token_ids or output_token_ids, or history_max to the Sampler"},
    {"this plan's input is probabilities", "probs is True"},
    {"the plan's is", "that of the logits is"},
    {"drafts.params", "draft_params"},
    {"drafts.first", "first"},
    {"drafts.parent", "parent"},
    {"drafts has both logits and probabilities", "draft_logits and draft_probs are both given"},
    {"drafts.logits", "draft_logits"},
    {"drafts.probabilities", "draft_probs"},
    {"RAFFLE_REJECTION", "method 'rejection'"},
    {"RAFFLE_BLOCK", "method 'block'"},
    {"RAFFLE_MATCH", "method 'match'"},
    {"RAFFLE_SYNTHETIC", "method 'synthetic'"},
    {"raffle_report.all tells all", "sample(logprobs=-1) tells of all"},
};

static PyObject *sentence_of(const char *text) {
    const char *name = "";
    for (size_t i = 0; i < sizeof first_words / sizeof *first_words; ++i) {
        const size_t length = strlen(first_words[i].c);
        if (strncmp(text, first_words[i].c, length) || isalnum((unsigned char)text[length]) || text[length] == '_') continue;
        name = first_words[i].python;
        text += length;
        break;
    }
    PyObject *made = PyUnicode_FromFormat("%s%s", name, text);
    for (size_t i = 0; made && i < sizeof names / sizeof *names; ++i) {
        PyObject *from = PyUnicode_FromString(names[i].c), *to = PyUnicode_FromString(names[i].python), *before = made;
        made = from && to ? PyUnicode_Replace(before, from, to, -1) : NULL;
        Py_XDECREF(from);
        Py_XDECREF(to);
        Py_DECREF(before);
    }
    return made;
}

PyObject *core_raise(raffle_status status, const raffle_error *error) {
    PyObject *type = exception_of(status);
    PyObject *sentence = sentence_of(error->text[0] ? error->text : raffle_status_name(status));
    PyObject *made = sentence ? PyObject_CallFunctionObjArgs(type, sentence, NULL) : NULL;
    PyObject *row = error->row < 0 ? Py_BuildValue("") : PyLong_FromLongLong(error->row);
    if (made && row && PyObject_SetAttrString(made, "row", row) == 0) PyErr_SetObject(type, made);
    Py_XDECREF(row);
    Py_XDECREF(made);
    Py_XDECREF(sentence);
    return NULL;
}
