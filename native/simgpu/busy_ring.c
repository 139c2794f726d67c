/* How busy a card was recently: busy time in a ring of buckets. */
#include "timeline.h"

#include <string.h>

void ring_add(struct busy_ring *ring, uint64_t from_ns, uint64_t to_ns)
{
    uint64_t bucket = from_ns / BUCKET_NS;
    if (bucket > ring->last_bucket + BUCKETS)
        memset(ring->busy_ns, 0, sizeof(ring->busy_ns));
    for (uint64_t last = to_ns / BUCKET_NS; bucket <= last; bucket++) {
        if (bucket > ring->last_bucket) {
            uint64_t clear = ring->last_bucket + 1;
            for (int n = 0; clear <= bucket && n < BUCKETS; clear++, n++)
                ring->busy_ns[clear % BUCKETS] = 0;
            ring->last_bucket = bucket;
        }
        uint64_t start = bucket * BUCKET_NS, end = start + BUCKET_NS;
        uint64_t busy_from = from_ns > start ? from_ns : start;
        ring->busy_ns[bucket % BUCKETS] += (uint32_t)((to_ns < end ? to_ns : end) - busy_from);
    }
}

uint64_t ring_busy_ns(const struct busy_ring *ring, uint64_t now_ns, uint64_t window_ns)
{
    uint64_t last = now_ns / BUCKET_NS, busy = 0;
    uint64_t first = (now_ns - window_ns) / BUCKET_NS;
    for (uint64_t bucket = first; bucket <= last; bucket++) {
        if (bucket > ring->last_bucket || bucket + BUCKETS <= ring->last_bucket)
            continue;
        uint64_t part = ring->busy_ns[bucket % BUCKETS];
        if (bucket == first && first < last) /* the window begins somewhere in it */
            part = part * (BUCKET_NS - (now_ns - window_ns) % BUCKET_NS) / BUCKET_NS;
        busy += part;
    }
    return busy;
}
