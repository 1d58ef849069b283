#include "picture.h"

#include <math.h>
#include <stdio.h>

#include "text.h"

picture picture_of_stdout(int ascii) {
    const picture made = {!ascii && text_utf8(), text_colour()};
    return made;
}

void ink_start(const picture *p, ink i) {
    static const char *const code[] = {"", "\033[2m", "\033[1m", "\033[34m", "\033[32m", "\033[1;33m"};
    if (p->colour && i) fputs(code[i], stdout);
}

void ink_end(const picture *p, ink i) {
    if (p->colour && i) fputs("\033[0m", stdout);
}

void picture_bar(const picture *p, double fraction, int columns, ink i) {
    static const char *const part[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    const int steps = p->utf8 ? 8 : 1;
    int length = fraction > 0 ? (int)lround(fraction * columns * steps) : 0;
    if (fraction > 0 && length == 0) length = 1;
    if (length > columns * steps) length = columns * steps;
    ink_start(p, i);
    for (int full = 0; full < length / steps; ++full) fputs(p->utf8 ? "█" : "#", stdout);
    fputs(part[length % steps], stdout);
    ink_end(p, i);
    for (int used = (length + steps - 1) / steps; used < columns; ++used) putchar(' ');
}
