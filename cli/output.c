#define _XOPEN_SOURCE 700
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static exit_code failed(const npy_output *out) { return complain("%s: %s", out->path, strerror(errno)), EXIT_MACHINE; }

/* The file that is written until it is complete: beside the one it will replace, which keeps its mode. */
static FILE *part_open(npy_output *out, const struct stat *before) {
    static const char ending[] = ".part";
    if (!(out->part = malloc(strlen(out->target) + sizeof ending))) return NULL;
    strcpy(out->part, out->target);
    strcat(out->part, ending);
    const int made = open(out->part, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0666);
    if (made < 0) {
        free(out->part);
        out->part = NULL;
        return NULL;
    }
    FILE *const file = before && fchmod(made, before->st_mode & 07777) ? NULL : fdopen(made, "wb");
    if (!file) close(made);
    return file;
}

exit_code output_open(npy_output *out, const char *path, const npy_view *view, int64_t rows, const char *descr) {
    char header[NPY_HEADER_BYTES];
    struct stat found, link;
    if (!path) return EXIT_FINE;
    out->path = path;
    const int there = stat(path, &found) == 0;
    if (!there && lstat(path, &link) == 0) return complain("%s: a link that leads nowhere", path), EXIT_MACHINE;
    if (!there || S_ISREG(found.st_mode)) { /* links, FIFOs and devices stay what they are */
        if (!(out->target = there ? realpath(path, NULL) : strdup(path))) return failed(out);
        out->file = part_open(out, there ? &found : NULL);
    } else {
        out->file = fopen(path, "wb");
    }
    if (!out->file) return failed(out);
    npy_header(view, rows, descr, header);
    return output_write(out, header, sizeof header);
}

exit_code output_write(npy_output *out, const void *data, size_t bytes) {
    if (!out->file || fwrite(data, 1, bytes, out->file) == bytes) return EXIT_FINE;
    return failed(out);
}

exit_code output_close(npy_output *out, int complete) {
    exit_code code = EXIT_FINE;
    if (out->file && fclose(out->file) && complete) code = failed(out);
    if (out->part && out->file && complete && !code && rename(out->part, out->target)) code = failed(out);
    if (out->part && (!out->file || !complete || code)) remove(out->part);
    free(out->part);
    free(out->target);
    out->part = out->target = NULL;
    out->file = NULL;
    return code;
}

/* The folder that a path is in. */
static int folder_stat(const char *path, struct stat *found) {
    const char *const slash = strrchr(path, '/');
    if (!slash) return stat(".", found);
    char *const folder = strdup(path);
    if (!folder) return -1;
    folder[slash - path + 1] = 0;
    const int status = stat(folder, found);
    free(folder);
    return status;
}

int output_same(const char *path, const char *other) {
    struct stat a, b;
    if (strcmp(path, other) == 0) return 1;
    const int there = stat(path, &a) == 0;
    if (there != (stat(other, &b) == 0)) return 0;
    if (!there) { /* two new files: of one name in one folder? */
        const char *const name = strrchr(path, '/'), *const other_name = strrchr(other, '/');
        if (strcmp(name ? name + 1 : path, other_name ? other_name + 1 : other) != 0) return 0;
        if (folder_stat(path, &a) || folder_stat(other, &b)) return 0;
    }
    return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}
