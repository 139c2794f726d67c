/* GPU time. Rules in gpu_time.h. */
#include "gpu_time.h"

#include "gate.h"
#include "lane.h"

#define MEASURE_EVERY_NS (MS / 4)
#define ESTIMATE_MORE_NS (MS / 4)
#define WAKING_NS (MS / 10)
#define UNSEEN_MOST_NS (20 * MS) /* the agent looks this often; after a longer absence, the program had been stopped */

static bool any_open(const struct gate *gate)
{
    for (const struct lane *lane = gate->lanes; lane; lane = lane->next)
        if (lane->stretch_ns)
            return true;
    return false;
}

/* ---- bursts */

static void burst_begins(struct gpu_time *time, uint64_t now_ns)
{
    uint64_t gap_ns = now_ns - time->burst_to_ns;
    time->total_ns += time->estimated_ns < gap_ns ? time->estimated_ns : gap_ns;
    time->estimated_ns = 0;
    time->burst_from_ns = now_ns;
    time->marking_ns = 0;
    time->measuring = true;
}

/* A burst the program waited for as long as for the last one, give or take a wake-up, was as long; otherwise the difference
 * counts. The agent sees bursts that are much longer at work; one that only seems so is a program that was woken late. */
static uint64_t estimate(int64_t length_ns, int64_t longer_ns)
{
    if (longer_ns > -(int64_t)WAKING_NS && longer_ns < (int64_t)WAKING_NS)
        return (uint64_t)length_ns;
    int64_t value_ns = length_ns + longer_ns, most_ns = 2 * length_ns + (int64_t)ESTIMATE_MORE_NS;
    return (uint64_t)(value_ns < 0 ? 0 : value_ns > most_ns ? most_ns : value_ns);
}

/* At random, so that every kind of burst is measured when kinds alternate. */
static uint64_t measure_after_ns(const struct gpu_time *time)
{
    uint64_t mixed = time->voided_ns * 0x9E3779B97F4A7C15ULL >> 40;
    return MEASURE_EVERY_NS / 2 + mixed % MEASURE_EVERY_NS;
}

bool burst_is_measured(const struct gpu_time *time, uint64_t now_ns)
{
    return time->voided || !time->burst_to_ns || now_ns - time->voided_ns >= measure_after_ns(time);
}

/* A waiting thread launched before it waited; without one, the launch came after the last look, a tick ago. */
uint64_t unseen_since_ns(const struct gate *gate, uint64_t now_ns)
{
    const struct gpu_time *time = &gate->gpu_time;
    return time->waiting && time->wait_ns > time->until_ns ? time->wait_ns : now_ns - TICK_NS / 2;
}

bool burst_ends(struct gate *gate, bool unseen, uint64_t now_ns)
{
    struct gpu_time *time = &gate->gpu_time;
    int64_t waited_ns = (int64_t)(now_ns - time->wait_ns);
    if (time->burst_to_ns && !any_open(gate)) {
        int64_t length_ns = (int64_t)(time->burst_to_ns - time->burst_from_ns);
        if (time->measuring)
            time->waited_ns = waited_ns + (int64_t)time->marking_ns;
        else if (unseen && !time->voided)
            time->estimated_ns += estimate(length_ns, waited_ns - time->waited_ns);
    }
    time->measuring = false;
    if (time->voided || now_ns - time->voided_ns < measure_after_ns(time))
        return false;
    time->voided = true;
    time->voided_ns = now_ns;
    return true;
}

/* ---- stretches */

static void add(struct gpu_time *time, uint64_t from_ns, uint64_t to_ns)
{
    if (time->count == STRETCHES) { /* rather lose a gap than a stretch */
        struct stretch *last = &time->ended[STRETCHES - 1];
        last->to_ns = last->to_ns > to_ns ? last->to_ns : to_ns;
        return;
    }
    unsigned int place = time->count++;
    for (; place && time->ended[place - 1].from_ns > from_ns; place--)
        time->ended[place] = time->ended[place - 1];
    time->ended[place] = (struct stretch){from_ns, to_ns};
}

void stretch_begins(struct lane *lane, uint64_t now_ns)
{
    struct gate *gate = lane->gate;
    if (!any_open(gate))
        burst_begins(&gate->gpu_time, now_ns);
    if (gate->gpu_time.count >= STRETCHES / 2)
        gpu_time_ns(gate, now_ns);
    lane->stretch_ns = lane->seen_ns = now_ns;
    lane->passed = false;
}

void stretch_begins_later(struct lane *lane, uint64_t at_ns)
{
    struct gpu_time *time = &lane->gate->gpu_time;
    if (at_ns <= lane->stretch_ns)
        return;
    if (time->burst_from_ns == lane->stretch_ns)
        time->burst_from_ns = at_ns;
    lane->stretch_ns = at_ns;
    lane->seen_ns = lane->seen_ns > at_ns ? lane->seen_ns : at_ns;
}

void stretch_ends(struct lane *lane, uint64_t at_ns)
{
    struct gpu_time *time = &lane->gate->gpu_time;
    if (!lane->stretch_ns)
        return;
    if (at_ns > lane->stretch_ns)
        add(time, lane->stretch_ns, at_ns);
    lane->stretch_ns = 0;
    if (time->measuring)
        time->burst_to_ns = at_ns > time->burst_from_ns ? at_ns : time->burst_from_ns;
}

void stretch_has_ended(struct lane *lane, uint64_t now_ns)
{
    uint64_t unseen_ns = now_ns > lane->seen_ns ? now_ns - lane->seen_ns : 0;
    stretch_ends(lane, now_ns - unseen_ns + (unseen_ns < UNSEEN_MOST_NS ? unseen_ns : UNSEEN_MOST_NS) / 2);
}

/* ---- when */

static uint64_t *word_of(struct gpu_time *time, uint64_t slot, uint64_t *bit)
{
    *bit = 1ULL << slot % 64;
    return &time->slots[slot % SLOTS / 64];
}

/* Slots up to that time are known: idle unless work was recorded. */
static void slots_pass(struct gpu_time *time, uint64_t until_ns)
{
    uint64_t end = (until_ns + SLOT_NS / 2) / SLOT_NS, bit;
    if (end > time->slots_end + SLOTS)
        time->slots_end = end - SLOTS;
    for (; time->slots_end < end; time->slots_end++) {
        uint64_t *word = word_of(time, time->slots_end, &bit);
        *word &= ~bit;
    }
}

/* Records work, which begins at the last known slot or later. */
static void slots_work(struct gpu_time *time, uint64_t from_ns, uint64_t to_ns)
{
    slots_pass(time, from_ns);
    uint64_t slot = time->slots_end, bit;
    slots_pass(time, to_ns);
    if (slot + SLOTS < time->slots_end)
        slot = time->slots_end - SLOTS;
    for (; slot < time->slots_end; slot++) {
        uint64_t *word = word_of(time, slot, &bit);
        *word |= bit;
    }
}

uint64_t gpu_time_slots(const struct gpu_time *time, uint64_t words[SLOT_WORDS])
{
    for (int i = 0; i < SLOT_WORDS; i++) {
        words[i] = 0;
        for (int j = 0; j < 64; j++) {
            uint64_t slot = time->slots_end + (uint64_t)(i * 64 + j);
            words[i] |= (time->slots[slot % SLOTS / 64] >> slot % 64 & 1) << j;
        }
    }
    return time->slots_end;
}

/* ---- their union */

static void settle(struct gpu_time *time, uint64_t until_ns)
{
    unsigned int kept = 0;
    for (unsigned int i = 0; i < time->count; i++) {
        struct stretch *one = &time->ended[i];
        uint64_t from_ns = one->from_ns > time->until_ns ? one->from_ns : time->until_ns;
        uint64_t to_ns = one->to_ns < until_ns ? one->to_ns : until_ns;
        if (to_ns > from_ns) {
            time->total_ns += to_ns - from_ns;
            time->until_ns = to_ns;
            slots_work(time, from_ns, to_ns);
        }
        if (one->to_ns > until_ns)
            time->ended[kept++] = *one;
    }
    time->count = kept;
    time->until_ns = time->until_ns > until_ns ? time->until_ns : until_ns;
}

uint64_t gpu_time_ns(struct gate *gate, uint64_t now_ns)
{
    struct gpu_time *time = &gate->gpu_time;
    uint64_t known_ns = now_ns, open_ns = now_ns; /* from here to there some lane works all the time */
    for (const struct lane *lane = gate->lanes; lane; lane = lane->next) {
        if (!lane->stretch_ns)
            continue;
        uint64_t seen_ns = lane->starting ? lane->stretch_ns : lane->seen_ns;
        known_ns = seen_ns < known_ns ? seen_ns : known_ns;
        open_ns = lane->stretch_ns < open_ns ? lane->stretch_ns : open_ns;
    }
    settle(time, open_ns < known_ns ? open_ns : known_ns);
    if (known_ns > time->until_ns) {
        time->total_ns += known_ns - time->until_ns;
        slots_work(time, time->until_ns, known_ns);
        time->until_ns = known_ns; /* first: what ended before is in it */
        settle(time, known_ns);
    }
    slots_pass(time, time->until_ns);
    return time->total_ns;
}
