/* A thread that is cancelled while it holds a lock of ours, or stands in a line, would leave both behind for ever: between
 * the two it is not cancelled. A cancellation asked for meanwhile acts at the program's next cancellation point. */
#ifndef INTERPOSER_CANCEL_H
#define INTERPOSER_CANCEL_H

#include <pthread.h>

static inline int cancel_hold(void)
{
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}

static inline void cancel_restore(int before)
{
    pthread_setcancelstate(before, &before);
}

#endif
