/* picture.h - bars and colours in a terminal. */
#ifndef PICTURE_H
#define PICTURE_H

typedef struct picture {
    int utf8;   /* eighths of blocks, or '#' */
    int colour; /* escape sequences */
} picture;

typedef enum ink { INK_PLAIN, INK_FAINT, INK_BOLD, INK_BEFORE, INK_AFTER, INK_DRAWN } ink;

/* How to draw on stdout; `ascii` forces plain characters. */
picture picture_of_stdout(int ascii);
void ink_start(const picture *picture, ink ink);
void ink_end(const picture *picture, ink ink);
/* A bar of `fraction` of `columns` on stdout, padded to `columns`. Anything above 0 shows. */
void picture_bar(const picture *picture, double fraction, int columns, ink ink);

#endif
