#include "lists.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "input.h"

void list_free(id_list *list) {
    const id_list none = {0};
    free(list->id);
    free(list->value);
    *list = none;
}

static int is_between(char c) { return c == ',' || isspace((unsigned char)c); }

/* A whole number of 32 bits, not below 0. Returns what follows it, or NULL. */
static const char *read_id(const char *text, int32_t *id) {
    char *end;
    if (!isdigit((unsigned char)*text)) return NULL;
    errno = 0;
    const unsigned long long value = strtoull(text, &end, 10);
    if (errno == ERANGE || value > INT32_MAX) return NULL;
    *id = (int32_t)value;
    return end;
}

/* ":-1.5". */
static const char *read_value(const char *text, float *value) {
    char *end;
    if (*text != ':' || isspace((unsigned char)text[1])) return NULL;
    errno = 0;
    *value = strtof(text + 1, &end);
    return end == text + 1 || !(*value < INFINITY) || (errno == ERANGE && isinf(*value)) ? NULL : end;
}

/* Reads `text` into a list with room for it. Returns 0, or -1. */
static int read_all(id_list *list, list_form form, const char *text) {
    int32_t id;
    while (is_between(*text)) ++text;
    while (*text) {
        if (!(text = read_id(text, &id))) return -1;
        if (form == FORM_BIAS && !(text = read_value(text, &list->value[list->count]))) return -1;
        list->id[list->count++] = id;
        if (form == FORM_WORDS && *text == '+') {
            if (!*++text) return -1; /* and the word has no last token */
            continue;
        }
        if (form == FORM_WORDS) list->id[list->count++] = -1;
        if (*text && !is_between(*text)) return -1;
        while (is_between(*text)) ++text;
    }
    return 0;
}

/* The text itself, or that of the file that it names, with a closing zero. NULL: *code says why. */
static char *text_of(const char *text, exit_code *code) {
    file_bytes file = {text, strlen(text)};
    const int named = *text == '@';
    *code = named ? file_open(&file, text + 1) : EXIT_FINE;
    if (*code) return NULL;
    if (memchr(file.bytes, 0, file.size)) {
        complain("%s: a zero byte: not a list", text + 1);
        file_close(&file);
        *code = EXIT_USAGE;
        return NULL;
    }
    char *const copy = malloc(file.size + 1);
    if (copy) memcpy(copy, file.bytes, file.size);
    if (copy) copy[file.size] = 0;
    if (named) file_close(&file);
    if (!copy) complain("out of memory"), *code = EXIT_MACHINE;
    return copy;
}

exit_code list_read(id_list *list, list_form form, const char *name, const char *given) {
    static const char *const wish[] = {"token ids, by commas", "token ids, by commas", "pairs ID:BIAS, by commas, none +inf or nan",
                                       "sequences like 3+14+15, by commas"};
    exit_code code;
    list_free(list);
    char *const text = text_of(given, &code);
    if (!text) return code;
    const size_t room = strlen(text) + 2; /* an entry takes a character, and what follows it another */
    list->id = malloc(room * sizeof *list->id);
    list->value = malloc(room * sizeof *list->value);
    list->given = 1;
    if (!list->id || !list->value || room > INT32_MAX) {
        complain("out of memory");
        code = EXIT_MACHINE;
    } else if (read_all(list, form, text) || (form != FORM_TOKENS && !list->count)) {
        complain("--%s is \"%.60s\": must be %s", name, given, wish[form]);
        code = EXIT_USAGE;
    } else if (form == FORM_IDS || form == FORM_BIAS) {
        list->count = (int32_t)raffle_ids_sort(list->id, form == FORM_BIAS ? list->value : NULL, list->count);
    }
    free(text);
    return code;
}
