/* dlpack.h - the DLPack 1.x structures as its specification lays them out, so that no header has to be shipped. */
#ifndef RAFFLE_PYTHON_DLPACK_H
#define RAFFLE_PYTHON_DLPACK_H

#include <stdint.h>

enum { DL_CPU = 1, DL_CUDA = 2, DL_CUDA_HOST = 3, DL_CUDA_MANAGED = 13 };
enum { DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2, DL_BFLOAT = 4, DL_BOOL = 6 };
enum { DL_FLAG_READ_ONLY = 1 };

typedef struct dl_device {
    int32_t type, id;
} dl_device;

typedef struct dl_dtype {
    uint8_t code, bits;
    uint16_t lanes;
} dl_dtype;

typedef struct dl_tensor {
    void *data;
    dl_device device;
    int32_t ndim;
    dl_dtype dtype;
    int64_t *shape, *strides; /* in elements; strides NULL: C order */
    uint64_t byte_offset;
} dl_tensor;

/* in capsules named "dltensor" */
typedef struct dl_managed {
    dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed *);
} dl_managed;

typedef struct dl_version {
    uint32_t major, minor;
} dl_version;

/* in capsules named "dltensor_versioned" */
typedef struct dl_managed_versioned {
    dl_version version;
    void *context;
    void (*deleter)(struct dl_managed_versioned *);
    uint64_t flags;
    dl_tensor tensor;
} dl_managed_versioned;

/* The table of C functions that a tensor type may offer as __dlpack_c_exchange_api__ (DLPack 1.2 and newer): the
 * same exchange without a Python call. */
typedef struct dl_exchange {
    dl_version version;
    struct dl_exchange *previous;
    int (*allocate)(dl_tensor *, dl_managed_versioned **, void *, void (*)(void *, const char *, const char *));
    int (*from_object)(void *object, dl_managed_versioned **out);
    int (*to_object)(dl_managed_versioned *, void **object);
    int (*from_object_unowned)(void *object, dl_tensor *out);
    int (*current_stream)(int32_t device_type, int32_t device_id, void **stream);
} dl_exchange;

#endif
