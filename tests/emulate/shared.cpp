/* shared.cpp - shared memory: the thread-local variables of the program or library that this is linked into, which are those
 * of its kernels and nothing else. Which belong to a kernel is found by their names in the symbol table. */
#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "block.h"

/* Dynamic shared memory: kernels declare it as this. */
thread_local float4 shared[emulate::DYNAMIC_MAX / sizeof(float4) + 16];

namespace emulate {
namespace {

enum { RUBBISH = 0xcb };

struct range { size_t first, bytes; }; /* inside the thread-local memory */

struct segment {
    size_t bytes;
    size_t bias; /* what is added to addresses of symbols */
    std::string file;
};

int segment_find(dl_phdr_info *info, size_t, void *given) {
    segment *to = (segment *)given;
    bool own = false;
    size_t bytes = 0;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const ElfW(Phdr) &part = info->dlpi_phdr[i];
        own |= part.p_type == PT_LOAD && (size_t)segment_find - info->dlpi_addr - part.p_vaddr < part.p_memsz;
        if (part.p_type == PT_TLS) bytes = part.p_memsz;
    }
    if (own) *to = {bytes, info->dlpi_addr, *info->dlpi_name ? info->dlpi_name : "/proc/self/exe"};
    return own;
}

segment own_segment() {
    segment found = {};
    dl_iterate_phdr(segment_find, &found);
    return found;
}

/* Function addresses with their names, and thread-local variables with theirs. */
struct symbols {
    std::map<size_t, std::string> function;
    std::multimap<std::string, range> variable;

    symbols() {
        std::ifstream in(own_segment().file, std::ios::binary);
        const std::string file((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
        if (file.size() < sizeof(ElfW(Ehdr))) return;
        const ElfW(Ehdr) *head = (const ElfW(Ehdr) *)file.data();
        const ElfW(Shdr) *section = (const ElfW(Shdr) *)(file.data() + head->e_shoff);
        for (int i = 0; i < head->e_shnum; ++i) {
            if (section[i].sh_type != SHT_SYMTAB) continue;
            const char *names = file.data() + section[section[i].sh_link].sh_offset;
            const ElfW(Sym) *symbol = (const ElfW(Sym) *)(file.data() + section[i].sh_offset);
            for (size_t j = 0; j < section[i].sh_size / sizeof *symbol; ++j) add(symbol[j], names + symbol[j].st_name);
        }
    }
    void add(const ElfW(Sym) &symbol, const char *name) {
        const int type = ELF64_ST_TYPE(symbol.st_info);
        if (type == STT_FUNC && symbol.st_value) function.emplace(symbol.st_value, name);
        if (type == STT_TLS && symbol.st_shndx != SHN_UNDEF) variable.emplace(name, range{symbol.st_value, symbol.st_size});
    }
};

const symbols &all_symbols() {
    static const symbols all;
    return all;
}

/* The variables of a kernel: of _Z6kernelv they are _ZZ6kernelvE... */
const std::vector<range> &ranges_of(const void *kernel) {
    const symbols &all = all_symbols();
    static std::map<const void *, std::vector<range>> known;
    auto place = known.emplace(kernel, std::vector<range>());
    std::vector<range> &list = place.first->second;
    auto name = all.function.find((size_t)kernel - own_segment().bias);
    if (!place.second || name == all.function.end() || name->second.compare(0, 2, "_Z")) return list;
    const std::string start = "_ZZ" + name->second.substr(2) + "E";
    for (auto v = all.variable.lower_bound(start); v != all.variable.end() && !v->first.compare(0, start.size(), start); ++v)
        list.push_back(v->second);
    return list;
}

} // namespace

/* Where the thread-local memory of the host thread that asks begins: by a variable in it. (The loader does not tell it of
 * libraries that were loaded late, as those of Python are.) */
char *shared_base() {
    static const size_t before = [] {
        const auto own = all_symbols().variable.find("shared");
        if (own == all_symbols().variable.end()) die("this program has no symbols: the emulation needs them");
        return own->second.first;
    }();
    return (char *)shared - before;
}

bool is_shared(const void *p) {
    static const size_t bytes = own_segment().bytes;
    return (size_t)((const char *)p - running().shared) < bytes;
}

void shared_spoil(const void *kernel, size_t dynamic) {
    char *const base = shared_base();
    for (const range &r : ranges_of(kernel)) memset(base + r.first, RUBBISH, r.bytes);
    memset(shared, RUBBISH, dynamic + sizeof *shared);
}

void shared_check(size_t dynamic) {
    const unsigned char *behind = (const unsigned char *)shared + dynamic;
    for (size_t i = 0; dynamic && i < sizeof *shared; ++i)
        if (behind[i] != RUBBISH) die("byte %zu behind %zu bytes of dynamic shared memory was written", i, dynamic);
}

} // namespace emulate
