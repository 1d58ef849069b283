/* lists.h - lists of token ids on the command line: "3,14,15", or @FILE with the same in a file. */
#ifndef LISTS_H
#define LISTS_H

#include "cli.h"

/* How a list is written. Entries stand between commas or white space. */
typedef enum list_form {
    FORM_TOKENS, /* 5,3,5       in this order; may be empty */
    FORM_IDS,    /* 5,3         sorted when read */
    FORM_BIAS,   /* 5:-1.5,3:2  sorted when read */
    FORM_WORDS   /* 5+3+1,2     sequences, each ended by -1 when read */
} list_form;

typedef struct id_list {
    int given;
    int32_t *id;
    float *value; /* of FORM_BIAS */
    int32_t count;
} id_list;

/* Reads the value of option --`name`; complains when it fails. A list that was there before is replaced. */
exit_code list_read(id_list *list, list_form form, const char *name, const char *text);
void list_free(id_list *list);

#endif
