/* The exported functions, all made from the table, and how programs find them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "gate.h"
#include "handlers.h"
#include "hooks.h"
#include "memory.h"
#include "pass.h"
#include "real.h"
#include "settings.h"
#include "start.h"
#include "synchronize.h"

#define EXPORT __attribute__((visibility("default")))
#define LIKELY(condition) __builtin_expect(condition, 1)
#define MISSING CUDA_ERROR_NOT_SUPPORTED /* the driver does not have the function */

static inline CUstream per_thread(CUstream stream)
{
    return stream ? stream : CU_STREAM_PER_THREAD;
}

/* With a pass it is two comparisons and a jump, with credit a few more. Whatever needs more registers, or a stack frame, is
 * in a function of its own. */
#define GATED_WAYS(symbol, key, parameters, arguments)                          \
    static __attribute__((noinline)) CUresult gated_##symbol parameters         \
    {                                                                           \
        struct ticket ticket;                                                   \
        unsigned int place = second_place(key);                                 \
        if (real.symbol && (has_pass(key, place) || spends_credit(key, place))) \
            return real.symbol arguments;                                       \
        gate_enter(key, false, &ticket);                                        \
        CUresult result = real.symbol ? real.symbol arguments : MISSING;        \
        gate_leave(&ticket);                                                    \
        return result;                                                          \
    }                                                                           \
    static __attribute__((noinline)) CUresult paced_##symbol parameters         \
    {                                                                           \
        if (real.symbol && spends_credit(key, first_place(key)))                \
            return real.symbol arguments;                                       \
        return gated_##symbol arguments;                                        \
    }
#define GATED_FUNCTION(symbol, key, parameters, arguments)          \
    GATED_WAYS(symbol, key, parameters, arguments)                  \
    EXPORT CUresult symbol parameters;                              \
    EXPORT CUresult symbol parameters                               \
    {                                                               \
        if (LIKELY(has_pass(key, first_place(key)) && real.symbol)) \
            return real.symbol arguments;                           \
        return paced_##symbol arguments;                            \
    }
#define FILL_FUNCTION(symbol, twin, key, parameters, arguments, twin_arguments) \
    GATED_WAYS(symbol, key, parameters, arguments)                              \
    EXPORT CUresult symbol parameters;                                          \
    EXPORT CUresult symbol parameters                                           \
    {                                                                           \
        CUstream on = key;                                                      \
        if (real.twin && memory_is_made_managed(dst))                           \
            return twin twin_arguments;                                         \
        if (has_pass(key, first_place(key)) && real.symbol)                     \
            return real.symbol arguments;                                       \
        return paced_##symbol arguments;                                        \
    }
/* The call waits for its own work, so it is also a wait of the program for the stream. */
#define BLOCKING_FUNCTION(symbol, key, parameters, arguments)                              \
    EXPORT CUresult symbol parameters;                                                     \
    EXPORT CUresult symbol parameters                                                      \
    {                                                                                      \
        struct ticket ticket = {0};                                                        \
        struct wait wait;                                                                  \
        bool passes = has_pass(key, first_place(key)) || has_pass(key, second_place(key)); \
        bool on = library_start();                                                         \
        if (!real.symbol)                                                                  \
            return MISSING;                                                                \
        if (!on)                                                                           \
            return real.symbol arguments;                                                  \
        if (!passes)                                                                       \
            gate_enter(key, true, &ticket);                                                \
        stream_wait_begins(key, &wait);                                                    \
        CUresult result = real.symbol arguments;                                           \
        wait.failed = result != CUDA_SUCCESS;                                              \
        wait_ends(&wait);                                                                  \
        if (!passes)                                                                       \
            gate_leave(&ticket);                                                           \
        return result;                                                                     \
    }
#define HANDLED_FUNCTION(symbol, parameters, arguments, body)   \
    EXPORT CUresult symbol parameters;                          \
    EXPORT CUresult symbol parameters                           \
    {                                                           \
        bool on = library_start();                              \
        if (!real.symbol)                                       \
            return MISSING;                                     \
        if (!on)                                                \
            return real.symbol arguments;                       \
        body                                                    \
    }
#define NVML_FUNCTION(symbol, parameters, arguments)                   \
    EXPORT nvmlReturn_t symbol parameters;                             \
    EXPORT nvmlReturn_t symbol parameters                              \
    {                                                                  \
        bool on = library_is_on();                                     \
        real_find_nvml();                                              \
        if (!real.symbol)                                              \
            return NVML_ERROR_FUNCTION_NOT_FOUND;                      \
        return on ? handle_##symbol arguments : real.symbol arguments; \
    }

#define GATED(symbol, name, since, variant, stream, parameters, arguments) \
    GATED_FUNCTION(symbol, stream, parameters, arguments)                  \
    GATED_FUNCTION(symbol##_##variant, per_thread(stream), parameters, arguments)
#define FILL(symbol, twin, name, since, variant, parameters, arguments, twin_arguments) \
    FILL_FUNCTION(symbol, twin, NULL, parameters, arguments, twin_arguments)            \
    FILL_FUNCTION(symbol##_##variant, twin, CU_STREAM_PER_THREAD, parameters, arguments, twin_arguments)
#define BLOCKING(symbol, name, since, variant, parameters, arguments) \
    BLOCKING_FUNCTION(symbol, NULL, parameters, arguments)            \
    BLOCKING_FUNCTION(symbol##_##variant, CU_STREAM_PER_THREAD, parameters, arguments)
#define HANDLED(symbol, name, since, parameters, arguments) \
    HANDLED_FUNCTION(symbol, parameters, arguments, return handle_##symbol arguments;)
#define HANDLED_STREAM(symbol, name, since, variant, parameters, arguments)            \
    HANDLED_FUNCTION(symbol, parameters, arguments, return handle_##symbol arguments;) \
    HANDLED_FUNCTION(symbol##_##variant, parameters, arguments, stream = per_thread(stream); return handle_##symbol arguments;)
#define NVML(symbol, parameters, arguments) NVML_FUNCTION(symbol, parameters, arguments)
#include "hooks.def"
#undef GATED
#undef FILL
#undef BLOCKING
#undef HANDLED
#undef HANDLED_STREAM
#undef NVML
#undef RENAMED

#define ROW(symbol, name, since, twin) {#symbol, name, since, twin, (void *)symbol, (void *)&real.symbol},
#define GATED(symbol, name, since, variant, stream, parameters, arguments) \
    ROW(symbol, name, since, false) ROW(symbol##_##variant, name, since, true)
#define BLOCKING(symbol, name, since, variant, parameters, arguments) \
    ROW(symbol, name, since, false) ROW(symbol##_##variant, name, since, true)
#define HANDLED(symbol, name, since, parameters, arguments) ROW(symbol, name, since, false)
#define HANDLED_STREAM(symbol, name, since, variant, parameters, arguments) \
    ROW(symbol, name, since, false) ROW(symbol##_##variant, name, since, true)
#define RENAMED(symbol, name, since) ROW(symbol, name, since, false)
#define NVML(symbol, parameters, arguments) ROW(symbol, NULL, 0, false)
static const struct hook {
    const char *symbol, *name; /* name: what cuGetProcAddress knows it by */
    int since;
    bool is_per_thread;
    void *ours;
    void *const *real;
} hooks[] = {
#include "hooks.def"
};
#define HOOKS (sizeof(hooks) / sizeof(hooks[0]))

void *hook_of_symbol(const char *symbol)
{
    for (size_t i = 0; i < HOOKS; i++)
        if (strcmp(hooks[i].symbol, symbol) == 0)
            return hooks[i].ours;
    return NULL;
}

static const struct hook *by_address(const void *address)
{
    for (size_t i = 0; i < HOOKS; i++)
        if (*hooks[i].real == address)
            return &hooks[i];
    return NULL;
}

/* The newest we know up to the requested version; with per-thread default streams if those are requested. */
static const struct hook *by_name(const char *name, int version, bool is_per_thread)
{
    const struct hook *best = NULL;
    for (size_t i = 0; i < HOOKS; i++) {
        const struct hook *hook = &hooks[i];
        if (!hook->name || strcmp(hook->name, name) != 0 || hook->since > version || !*hook->real ||
            (hook->is_per_thread && !is_per_thread))
            continue;
        if (!best || hook->since > best->since || (hook->since == best->since && hook->is_per_thread))
            best = hook;
    }
    return best;
}

/* A driver newer than this table may have a newer function of that name, with other parameters, which is left alone. */
static bool has_newer(const struct hook *hook)
{
    char symbol[96];
    const char *suffix = strstr(hook->symbol, "_v");
    int version = suffix ? suffix[2] - '0' : 1;
    for (const struct hook *other = hooks; other < hooks + HOOKS; other++)
        if (other->name && strcmp(other->name, hook->name) == 0 && other->since > hook->since)
            return false; /* known: the requested version has chosen */
    snprintf(symbol, sizeof(symbol), "%s_v%d", hook->name, version + 1);
    return !hook_of_symbol(symbol) && real_driver_symbol(symbol) != NULL;
}

void *hook_instead_of(void *found, const char *name, int version, bool is_per_thread)
{
    const struct hook *hook = by_address(found);
    if (!hook) {
        hook = by_name(name, version, is_per_thread);
        if (hook && has_newer(hook)) {
            say_debug("this driver has a newer %s than the library knows: not gated", name);
            hook = NULL;
        }
    }
    return hook ? hook->ours : found;
}

#define FLAG_PER_THREAD 2

CUresult handle_cuGetProcAddress(const char *name, void **function, int version, uint64_t flags)
{
    CUresult result = real.cuGetProcAddress(name, function, version, flags);
    if (result == CUDA_SUCCESS && name && function && *function)
        *function = hook_instead_of(*function, name, version, flags & FLAG_PER_THREAD);
    return result;
}

CUresult handle_cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status)
{
    CUresult result = real.cuGetProcAddress_v2(name, function, version, flags, status);
    if (result == CUDA_SUCCESS && name && function && *function)
        *function = hook_instead_of(*function, name, version, flags & FLAG_PER_THREAD);
    return result;
}
