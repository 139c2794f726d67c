/* GPU time. Rules in worked.h. */
#include "worked.h"

#include "gate.h"
#include "lane.h"

#define MEASURE_EVERY_NS (MS / 4)
#define ALIKE_MORE_NS (MS / 4)
#define WAKING_NS (MS / 10)
#define UNSEEN_MOST_NS (20 * MS) /* so often is looked; a longer absence is a stopped program's */

static bool any_open(const struct gate *gate)
{
    for (const struct lane *lane = gate->lanes; lane; lane = lane->next)
        if (lane->stretch_ns)
            return true;
    return false;
}

/* ---- bursts */

static void burst_begins(struct worked *worked, uint64_t now_ns)
{
    uint64_t gap_ns = now_ns - worked->burst_to_ns;
    worked->total_ns += worked->alike_ns < gap_ns ? worked->alike_ns : gap_ns;
    worked->alike_ns = 0;
    worked->burst_from_ns = now_ns;
    worked->marking_ns = 0;
    worked->measuring = true;
}

/* One that was waited for as long, but for what waking up takes, was as long; else the difference counts. One that takes much
 * longer is found at work by the thread; what seems to is a program that was woken late. */
static uint64_t alike(int64_t length_ns, int64_t longer_ns)
{
    if (longer_ns > -(int64_t)WAKING_NS && longer_ns < (int64_t)WAKING_NS)
        return (uint64_t)length_ns;
    int64_t value_ns = length_ns + longer_ns, most_ns = 2 * length_ns + (int64_t)ALIKE_MORE_NS;
    return (uint64_t)(value_ns < 0 ? 0 : value_ns > most_ns ? most_ns : value_ns);
}

/* At random, so that of kinds of bursts that come in turn each is measured. */
static uint64_t measure_after_ns(const struct worked *worked)
{
    uint64_t mixed = worked->voided_ns * 0x9E3779B97F4A7C15ULL >> 40;
    return MEASURE_EVERY_NS / 2 + mixed % MEASURE_EVERY_NS;
}

bool burst_is_measured(const struct worked *worked, uint64_t now_ns)
{
    return worked->voided || !worked->burst_to_ns || now_ns - worked->voided_ns >= measure_after_ns(worked);
}

/* Whoever waits has launched before; else somebody may have since the last look, a tick ago. */
uint64_t unseen_since_ns(const struct gate *gate, uint64_t now_ns)
{
    const struct worked *worked = &gate->worked;
    return worked->waiting && worked->wait_ns > worked->until_ns ? worked->wait_ns : now_ns - TICK_NS / 2;
}

bool burst_ends(struct gate *gate, bool unseen, uint64_t now_ns)
{
    struct worked *worked = &gate->worked;
    int64_t waited_ns = (int64_t)(now_ns - worked->wait_ns);
    if (worked->burst_to_ns && !any_open(gate)) {
        int64_t length_ns = (int64_t)(worked->burst_to_ns - worked->burst_from_ns);
        if (worked->measuring)
            worked->waited_ns = waited_ns + (int64_t)worked->marking_ns;
        else if (unseen && !worked->voided)
            worked->alike_ns += alike(length_ns, waited_ns - worked->waited_ns);
    }
    worked->measuring = false;
    if (worked->voided || now_ns - worked->voided_ns < measure_after_ns(worked))
        return false;
    worked->voided = true;
    worked->voided_ns = now_ns;
    return true;
}

/* ---- stretches */

static void add(struct worked *worked, uint64_t from_ns, uint64_t to_ns)
{
    if (worked->count == STRETCHES) { /* rather a gap too few than a stretch */
        struct stretch *last = &worked->ended[STRETCHES - 1];
        last->to_ns = last->to_ns > to_ns ? last->to_ns : to_ns;
        return;
    }
    unsigned int place = worked->count++;
    for (; place && worked->ended[place - 1].from_ns > from_ns; place--)
        worked->ended[place] = worked->ended[place - 1];
    worked->ended[place] = (struct stretch){from_ns, to_ns};
}

void stretch_begins(struct lane *lane, uint64_t now_ns)
{
    struct gate *gate = lane->gate;
    if (!any_open(gate))
        burst_begins(&gate->worked, now_ns);
    if (gate->worked.count >= STRETCHES / 2)
        worked_ns(gate, now_ns);
    lane->stretch_ns = lane->seen_ns = now_ns;
    lane->passed = false;
}

void stretch_begins_later(struct lane *lane, uint64_t at_ns)
{
    struct worked *worked = &lane->gate->worked;
    if (at_ns <= lane->stretch_ns)
        return;
    if (worked->burst_from_ns == lane->stretch_ns)
        worked->burst_from_ns = at_ns;
    lane->stretch_ns = at_ns;
    lane->seen_ns = lane->seen_ns > at_ns ? lane->seen_ns : at_ns;
}

void stretch_ends(struct lane *lane, uint64_t at_ns)
{
    struct worked *worked = &lane->gate->worked;
    if (!lane->stretch_ns)
        return;
    if (at_ns > lane->stretch_ns)
        add(worked, lane->stretch_ns, at_ns);
    lane->stretch_ns = 0;
    if (worked->measuring)
        worked->burst_to_ns = at_ns > worked->burst_from_ns ? at_ns : worked->burst_from_ns;
}

void stretch_has_ended(struct lane *lane, uint64_t now_ns)
{
    uint64_t unseen_ns = now_ns > lane->seen_ns ? now_ns - lane->seen_ns : 0;
    stretch_ends(lane, now_ns - unseen_ns + (unseen_ns < UNSEEN_MOST_NS ? unseen_ns : UNSEEN_MOST_NS) / 2);
}

/* ---- when */

static uint64_t *word_of(struct worked *worked, uint64_t slot, uint64_t *bit)
{
    *bit = 1ULL << slot % 64;
    return &worked->slots[slot % SLOTS / 64];
}

/* Slots up to then are known: without work unless it was noted. */
static void slots_pass(struct worked *worked, uint64_t until_ns)
{
    uint64_t end = (until_ns + SLOT_NS / 2) / SLOT_NS, bit;
    if (end > worked->slots_end + SLOTS)
        worked->slots_end = end - SLOTS;
    for (; worked->slots_end < end; worked->slots_end++) {
        uint64_t *word = word_of(worked, worked->slots_end, &bit);
        *word &= ~bit;
    }
}

/* Work from the last known slot on, or later. */
static void slots_work(struct worked *worked, uint64_t from_ns, uint64_t to_ns)
{
    slots_pass(worked, from_ns);
    uint64_t slot = worked->slots_end, bit;
    slots_pass(worked, to_ns);
    if (slot + SLOTS < worked->slots_end)
        slot = worked->slots_end - SLOTS;
    for (; slot < worked->slots_end; slot++) {
        uint64_t *word = word_of(worked, slot, &bit);
        *word |= bit;
    }
}

uint64_t worked_slots(const struct worked *worked, uint64_t words[SLOT_WORDS])
{
    for (int i = 0; i < SLOT_WORDS; i++) {
        words[i] = 0;
        for (int j = 0; j < 64; j++) {
            uint64_t slot = worked->slots_end + (uint64_t)(i * 64 + j);
            words[i] |= (worked->slots[slot % SLOTS / 64] >> slot % 64 & 1) << j;
        }
    }
    return worked->slots_end;
}

/* ---- their union */

static void settle(struct worked *worked, uint64_t until_ns)
{
    unsigned int kept = 0;
    for (unsigned int i = 0; i < worked->count; i++) {
        struct stretch *one = &worked->ended[i];
        uint64_t from_ns = one->from_ns > worked->until_ns ? one->from_ns : worked->until_ns;
        uint64_t to_ns = one->to_ns < until_ns ? one->to_ns : until_ns;
        if (to_ns > from_ns) {
            worked->total_ns += to_ns - from_ns;
            worked->until_ns = to_ns;
            slots_work(worked, from_ns, to_ns);
        }
        if (one->to_ns > until_ns)
            worked->ended[kept++] = *one;
    }
    worked->count = kept;
    worked->until_ns = worked->until_ns > until_ns ? worked->until_ns : until_ns;
}

uint64_t worked_ns(struct gate *gate, uint64_t now_ns)
{
    struct worked *worked = &gate->worked;
    uint64_t known_ns = now_ns, open_ns = now_ns; /* from here to there some lane works all the time */
    for (const struct lane *lane = gate->lanes; lane; lane = lane->next) {
        if (!lane->stretch_ns)
            continue;
        uint64_t seen_ns = lane->starting ? lane->stretch_ns : lane->seen_ns;
        known_ns = seen_ns < known_ns ? seen_ns : known_ns;
        open_ns = lane->stretch_ns < open_ns ? lane->stretch_ns : open_ns;
    }
    settle(worked, open_ns < known_ns ? open_ns : known_ns);
    if (known_ns > worked->until_ns) {
        worked->total_ns += known_ns - worked->until_ns;
        slots_work(worked, worked->until_ns, known_ns);
        worked->until_ns = known_ns; /* first: what ended before is in it */
        settle(worked, known_ns);
    }
    slots_pass(worked, worked->until_ns);
    return worked->total_ns;
}
