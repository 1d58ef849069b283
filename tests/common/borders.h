/* borders.h - draws that fall next to the border between two stretches, or two tokens: there one ticket more or less changes the token,
 * and no estimate settles which it is. */
#ifndef RAFFLE_TESTS_BORDERS_H
#define RAFFLE_TESTS_BORDERS_H

#include <stdlib.h>
#include <string.h>

#include "../oracle/oracle.h"

enum { BORDER_STRETCH = 2048 };

static inline uint64_t border_share(uint64_t bits, uint64_t mass) {
    __extension__ typedef unsigned __int128 wide;
    return (uint64_t)((wide)bits * mass >> 64);
}

/* How far number r is from the next border between ranges, of which end[first .. last] tell where they end and of which the first
 * begins at `begin`: where these ranges begin and end is no border. *at: the range that holds r. */
static inline uint64_t border_distance(const uint64_t *end, int64_t first, int64_t last, uint64_t begin, uint64_t r, int64_t *at) {
    int64_t low = first, high = last; /* the first range that ends behind r */
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (end[middle] > r)
            high = middle;
        else
            low = middle + 1;
    }
    uint64_t from = low > first ? end[low - 1] : begin;
    uint64_t behind = end[low] == end[last] ? UINT64_MAX : end[low] - 1 - r, before = from == begin ? UINT64_MAX : r - from;
    *at = low;
    return behind < before ? behind : before;
}

/* Where the ranges of a row's tokens end, and of its stretches. Of a row that is proposed: those of each proposal, by which the last token
 * of a group also has what proposes none. */
typedef struct borders {
    uint64_t *token, *stretch, mass;
    int64_t vocab, stretches;
    int proposed;
    uint8_t *kept; /* [vocab]: which of the tokens that are proposed are */
} borders;

/* Out of the tokens' own tickets and of those of their groups. */
static inline uint64_t borders_proposed(const oracle_case *c, const uint64_t *own, uint64_t *held) {
    enum { GROUP = 256 };
    oracle_case unfiltered = *c;
    unfiltered.top_p = 1.0f;
    uint64_t rest = 0;
    const uint64_t mass = oracle_held(&unfiltered, held);
    for (int64_t i = 0; i < c->vocab; ++i) {
        rest += held[i] - own[i];
        held[i] = own[i];
        if (i % GROUP == GROUP - 1 || i == c->vocab - 1) held[i] += rest, rest = 0;
    }
    return mass;
}

static inline borders borders_make(const oracle_case *c) {
    borders b = {.vocab = c->vocab, .stretches = (c->vocab + BORDER_STRETCH - 1) / BORDER_STRETCH};
    uint64_t *own = malloc((size_t)b.vocab * sizeof *own);
    b.token = malloc((size_t)b.vocab * sizeof *b.token);
    b.stretch = malloc((size_t)b.stretches * sizeof *b.stretch);
    b.kept = malloc((size_t)b.vocab);
    b.proposed = oracle_sample(c, b.kept, own).proposals > 0;
    b.mass = b.proposed ? borders_proposed(c, own, b.token) : oracle_held(c, b.token);
    for (int64_t i = 1; i < b.vocab; ++i) b.token[i] += b.token[i - 1];
    for (int64_t i = 0; i < b.vocab; ++i) b.stretch[i / BORDER_STRETCH] = b.token[i];
    free(own);
    return b;
}

static inline void borders_free(borders b) {
    free(b.token);
    free(b.stretch);
    free(b.kept);
}

/* How far a draw is from the next border between stretches; *within: and its second number from that between two tokens; *token: which it
 * gives. By the first bits of a stream: 0 has those of draws and of first proposals, 5 + 256 j of proposal j, 4 of what is proposed in
 * place of a draft. */
static inline uint64_t borders_distance(const borders *b, uint32_t stream, uint64_t seed, uint64_t position, uint64_t *within, int64_t *token) {
    uint64_t bits[2];
    int64_t at;
    oracle_random(seed, position, stream, 0, bits);
    const uint64_t distance = border_distance(b->stretch, 0, b->stretches - 1, 0, border_share(bits[0], b->mass), &at);
    const int64_t first = BORDER_STRETCH * at, last = first + BORDER_STRETCH - 1 < b->vocab ? first + BORDER_STRETCH - 1 : b->vocab - 1;
    const uint64_t begin = at ? b->stretch[at - 1] : 0;
    *within = border_distance(b->token, first, last, begin, begin + border_share(bits[1], b->stretch[at] - begin), token);
    return distance;
}

/* The positions from `from` on, of `tried` many, whose draws are nearest to borders between stretches, or `tokens`: position [count], the
 * nearest first. Returns how far the last of them is, as a part of the mass. */
static inline double borders_find(const oracle_case *c, uint32_t stream, int tokens, uint64_t from, uint64_t tried, uint64_t *position, int count) {
    const borders b = borders_make(c);
    uint64_t *distance = malloc((size_t)count * sizeof *distance);
    int found = 0;
    for (uint64_t p = from; p < from + tried; ++p) {
        uint64_t within;
        int64_t token;
        const uint64_t between = borders_distance(&b, stream, c->seed, p, &within, &token), d = tokens ? within : between;
        if (found == count && d >= distance[count - 1]) continue;
        int at = found < count ? found++ : count - 1;
        for (; at > 0 && distance[at - 1] > d; --at) distance[at] = distance[at - 1], position[at] = position[at - 1];
        distance[at] = d;
        position[at] = p;
    }
    const double farthest = (double)distance[found - 1] / (double)b.mass;
    free(distance);
    borders_free(b);
    return farthest;
}

/* Positions whose token hangs on which of two shares a row is asked for: of rows that are proposed, the first proposal is kept by one of
 * them alone; of others, each draws its own token. position [count]; returns how many there are. */
static inline int borders_edge(const oracle_case *one, const oracle_case *other, uint64_t *position, int count) {
    const borders a = borders_make(one), b = borders_make(other);
    const uint64_t tried = !memcmp(a.kept, b.kept, (size_t)a.vocab) ? 0 : a.proposed ? 1500000 : 3000;
    int found = 0;
    for (uint64_t p = 0; p < tried && found < count; ++p) {
        uint64_t within;
        int64_t first, second;
        borders_distance(&a, 0, one->seed, p, &within, &first);
        second = first;
        if (!a.proposed) borders_distance(&b, 0, other->seed, p, &within, &second);
        if (first != second || (a.proposed && a.kept[first] != b.kept[first])) position[found++] = p;
    }
    borders_free(a);
    borders_free(b);
    return found;
}

#endif
