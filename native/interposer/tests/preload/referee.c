/* Stands between the library and the driver, and says at the end how often it saw an event used after its context had ended,
 * how many events were recorded, and over how many milliseconds. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>

#include "../cuda.h"
#include "../gaps.h"

CUresult cuCtxGetCurrent(CUcontext *ctx);
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active);

#define EVENTS 4096
#define NEXT(name) next_of(#name)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    CUevent event;
    CUcontext ctx;
    bool dead;
} events[EVENTS];
static int records, dead_uses;
static uint64_t first_ns, last_ns;

static void *next_of(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

/* With the lock held. */
static int place_of(CUevent event)
{
    for (int i = 0; i < EVENTS; i++)
        if (events[i].event == event)
            return i;
    return -1;
}

static void used(CUevent event)
{
    pthread_mutex_lock(&lock);
    int at = place_of(event);
    dead_uses += at >= 0 && events[at].dead;
    pthread_mutex_unlock(&lock);
}

CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
    CUresult (*next)(CUevent *, unsigned int) = (CUresult(*)(CUevent *, unsigned int))NEXT(cuEventCreate);
    CUcontext ctx = NULL;
    CUresult result = next(event, flags);
    cuCtxGetCurrent(&ctx);
    pthread_mutex_lock(&lock);
    int at = result == CUDA_SUCCESS ? place_of(*event) : -1;
    at = at < 0 ? place_of(NULL) : at;
    if (result == CUDA_SUCCESS && at >= 0) {
        events[at].event = *event;
        events[at].ctx = ctx;
        events[at].dead = false;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult cuEventQuery(CUevent event)
{
    used(event);
    return ((CUresult(*)(CUevent))NEXT(cuEventQuery))(event);
}

CUresult cuEventDestroy_v2(CUevent event)
{
    used(event);
    pthread_mutex_lock(&lock);
    int at = place_of(event);
    if (at >= 0)
        events[at].event = NULL;
    pthread_mutex_unlock(&lock);
    return ((CUresult(*)(CUevent))NEXT(cuEventDestroy_v2))(event);
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    used(event);
    pthread_mutex_lock(&lock);
    records++;
    last_ns = now_ns();
    first_ns = first_ns ? first_ns : last_ns;
    pthread_mutex_unlock(&lock);
    return ((CUresult(*)(CUevent, CUstream))NEXT(cuEventRecord))(event, stream);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    unsigned int flags;
    int active = 1;
    CUcontext ctx = NULL;
    cuCtxGetCurrent(&ctx);
    CUresult result = ((CUresult(*)(CUdevice))NEXT(cuDevicePrimaryCtxRelease_v2))(device);
    cuDevicePrimaryCtxGetState(device, &flags, &active);
    pthread_mutex_lock(&lock);
    for (int i = 0; !active && i < EVENTS; i++)
        events[i].dead = events[i].dead || (events[i].event && events[i].ctx == ctx);
    pthread_mutex_unlock(&lock);
    return result;
}

__attribute__((destructor)) static void tell(void)
{
    fprintf(stderr, "referee: %d uses of dead events, %d records in %llu ms\n", dead_uses, records,
            (unsigned long long)((last_ns - first_ns) / 1000000));
}
