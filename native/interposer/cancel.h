/* A thread cancelled while it holds one of our locks, or waits in a queue of ours, would leave both behind forever. So it is
 * not cancelled between the two calls below; a request made meanwhile takes effect at the program's next cancellation point. */
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
