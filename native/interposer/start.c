/* The first CUDA call starts the library; loading it does nothing. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cancel.h"
#include "capture.h"
#include "gates.h"
#include "lane.h"
#include "memory.h"
#include "real.h"
#include "settings.h"
#include "start.h"

enum { NOT_STARTED, ON, OFF };

static atomic_int state;
static bool cannot_gate; /* written before ``state`` says that the library has started */
static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;

/* A forked child has its parent's memory but none of its threads: if it uses CUDA, it starts afresh. */
static void begin_anew_in_child(void)
{
    pthread_mutex_init(&start_lock, NULL);
    gates_forget();
    lanes_forget_all();
    memory_forget_all();
    atomic_store(&captures, 0);
}

static void start(void)
{
    settings_read();
    real_find();
    const char *lacks = settings.disabled ? NULL : real_lacks();
    if (lacks)
        say("this driver lacks %s: launches are not gated", lacks);
    cannot_gate = lacks;
    pthread_atfork(NULL, NULL, begin_anew_in_child);
    atomic_store_explicit(&state, settings.disabled ? OFF : ON, memory_order_release);
}

__attribute__((destructor)) static void end(void)
{
    gates_report_last();
}

bool library_start(void)
{
    int now = atomic_load_explicit(&state, memory_order_acquire);
    if (now == NOT_STARTED) {
        int cancellable = cancel_hold();
        pthread_mutex_lock(&start_lock);
        if (atomic_load(&state) == NOT_STARTED)
            start();
        pthread_mutex_unlock(&start_lock);
        cancel_restore(cancellable);
        now = atomic_load(&state);
    }
    return now == ON;
}

bool library_can_gate(void)
{
    return !cannot_gate;
}

bool library_is_on(void)
{
    int now = atomic_load_explicit(&state, memory_order_acquire);
    if (now != NOT_STARTED)
        return now == ON;
    const char *text = getenv("NVSHARE_DISABLE"); /* looking a function up is not using CUDA yet */
    return !text || (strcmp(text, "1") != 0 && strcmp(text, "true") != 0);
}
