/* embedded.h - files that the build puts into the program. */
#ifndef EMBEDDED_H
#define EMBEDDED_H

#include <stddef.h>

extern const unsigned char vectors_text[]; /* tests/vectors/vectors.txt; no closing zero */
extern const size_t vectors_text_bytes;
extern const unsigned char requests_text[]; /* tests/vectors/requests.txt */
extern const size_t requests_text_bytes;

#endif
