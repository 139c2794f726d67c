/* Memory shared with other processes by a handle. The first handle for an allocation moves its pages into a file of the
 * state directory, in place; a process that opens the handle maps that file. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "alloc.h"
#include "driver.h"
#include "stream.h"

#define PAGE 4096

struct memory_handle {
    uint64_t magic, token, id, size, card;
};

static void path_of(const struct memory_handle *handle, char *path, size_t size)
{
    snprintf(path, size, "%s/ipc-%llx-%llu", drv.node->dir, (unsigned long long)handle->token,
             (unsigned long long)handle->id);
}

/* Copies the pages that exist: the rest of a large allocation was never written and stays a hole. */
static bool copy_pages(int fd, const char *base, size_t size)
{
    unsigned char present[256];
    for (size_t at = 0; at < size; at += sizeof(present) * PAGE) {
        size_t span = size - at < sizeof(present) * PAGE ? size - at : sizeof(present) * PAGE;
        if (mincore((void *)(base + at), span, present) != 0)
            return false;
        for (size_t page = 0; page * PAGE < span; page++) {
            size_t bytes = span - page * PAGE < PAGE ? span - page * PAGE : PAGE;
            if ((present[page] & 1) && pwrite(fd, base + at + page * PAGE, bytes, (off_t)(at + page * PAGE)) != (ssize_t)bytes)
                return false;
        }
    }
    return true;
}

static CUresult move_to_file(struct alloc *alloc, const struct memory_handle *handle)
{
    char path[600];
    path_of(handle, path, sizeof(path));
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    bool ok = ftruncate(fd, (off_t)alloc->size) == 0 && copy_pages(fd, (const char *)alloc->base, alloc->size) &&
              mmap((void *)alloc->base, alloc->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED;
    close(fd);
    alloc->shared = ok;
    if (!ok)
        unlink(path);
    return ok ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr address)
{
    ENTER_CONTEXT(ctx);
    TRY(wait_device(ctx));
    pthread_mutex_lock(&drv.lock);
    struct alloc *alloc = alloc_find(address);
    CUresult result = alloc && alloc->kind == ALLOC_DEVICE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        struct memory_handle handle = {STATE_MAGIC, drv.node->token, alloc->id, alloc->size, (uint64_t)alloc->device->card};
        if (!alloc->shared)
            result = move_to_file(alloc, &handle);
        memset(out, 0, sizeof(*out));
        memcpy(out, &handle, sizeof(handle));
    }
    pthread_mutex_unlock(&drv.lock);
    return result;
}

EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *out, CUipcMemHandle from, unsigned int flags)
{
    ENTER_CONTEXT(ctx);
    struct memory_handle handle;
    char path[600];
    memcpy(&handle, &from, sizeof(handle));
    if (!out || flags > 1 || handle.magic != STATE_MAGIC || handle.token == drv.node->token)
        return CUDA_ERROR_INVALID_HANDLE; /* a process cannot open its own */
    path_of(&handle, path, sizeof(path));
    int fd = open(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size != handle.size) {
        if (fd >= 0)
            close(fd);
        return CUDA_ERROR_INVALID_HANDLE;
    }
    void *at = mmap(NULL, handle.size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    struct alloc alloc = {.kind = ALLOC_IPC, .base = (uint64_t)at, .size = handle.size, .context = ctx,
                          .device = ctx->device};
    pthread_mutex_lock(&drv.lock);
    bool ok = at != MAP_FAILED && alloc_add(&alloc);
    pthread_mutex_unlock(&drv.lock);
    *out = alloc.base;
    return ok ? CUDA_SUCCESS : CUDA_ERROR_MAP_FAILED;
}

EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr address)
{
    ENTER_CONTEXT(ctx);
    pthread_mutex_lock(&drv.lock);
    struct alloc *alloc = alloc_find(address);
    bool known = alloc && alloc->kind == ALLOC_IPC && alloc->base == address;
    pthread_mutex_unlock(&drv.lock);
    if (!known)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(wait_device(ctx));
    alloc_release_address(address);
    return CUDA_SUCCESS;
}

/* The owner frees what others may still have mapped: they keep the pages, the name goes. */
void ipc_forget(const struct alloc *alloc)
{
    char path[600];
    struct memory_handle handle = {.token = drv.node->token, .id = alloc->id};
    path_of(&handle, path, sizeof(path));
    unlink(path);
}
