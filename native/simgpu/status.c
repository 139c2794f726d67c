/* The state of a node as JSON: what the driver itself counts. */
#include <inttypes.h>
#include <string.h>

#include "control.h"
#include "visible.h"

/* At most `size` bytes: processes write into the state, and may have left out the end. */
static void text(FILE *out, const char *name, const char *value, size_t size)
{
    fprintf(out, "\"%s\":\"", name);
    for (const char *end = value + size; value < end && *value; value++) {
        if (*value == '"' || *value == '\\' || (unsigned char)*value < 0x20)
            fprintf(out, "\\u%04x", (unsigned char)*value);
        else
            fputc(*value, out);
    }
    fputc('"', out);
}

static void number(FILE *out, const char *name, uint64_t value)
{
    fprintf(out, ",\"%s\":%" PRIu64, name, value);
}

static void write_process(FILE *out, const struct txn *txn, int slot)
{
    const struct proc *proc = txn_proc(txn, slot);
    uint64_t total = proc->context_bytes + proc->resident_bytes;
    for (int kind = 0; kind < MEM_KINDS; kind++)
        total += proc->bytes[kind];
    fputc('{', out);
    text(out, "name", txn->node->area->slots[slot].name, sizeof(txn->node->area->slots[slot].name));
    number(out, "pid", (uint64_t)slot_host_pid(txn->node, slot));
    number(out, "slot", (uint64_t)slot);
    number(out, "contexts", proc->contexts);
    number(out, "used_bytes", total);
    number(out, "context_bytes", proc->context_bytes);
    number(out, "device_bytes", proc->bytes[MEM_DEVICE]);
    number(out, "pool_bytes", proc->bytes[MEM_POOL]);
    number(out, "created_bytes", proc->bytes[MEM_CREATED]);
    number(out, "array_bytes", proc->bytes[MEM_ARRAY]);
    number(out, "managed_bytes", proc->managed_bytes);
    number(out, "resident_bytes", proc->resident_bytes);
    number(out, "busy_ns", proc->busy_ns);
    number(out, "launches", proc->launches);
    number(out, "completed_launches", proc->completed_launches);
    number(out, "faulted_bytes", proc->faulted_bytes);
    number(out, "evicted_bytes", proc->evicted_bytes);
    number(out, "copied_bytes", proc->copied_bytes);
    number(out, "attached_ns", proc->attached_ns);
    fputc('}', out);
}

static void write_card(FILE *out, struct node *node, int card)
{
    char uuid[48];
    struct txn txn;
    const struct card_spec *spec = &node->area->specs[card];
    uuid_text(spec, uuid);
    card_begin(&txn, node, card);
    card_sweep(&txn);
    const struct card_head *head = txn.head;
    fputc('{', out);
    text(out, "name", spec->name, sizeof(spec->name));
    fputc(',', out);
    text(out, "uuid", uuid, sizeof(uuid));
    number(out, "index", (uint64_t)card);
    number(out, "now_ns", head->now_ns);
    number(out, "created_ns", head->created_ns);
    number(out, "total_bytes", spec->memory_bytes);
    number(out, "used_bytes", head->reserved_bytes + head->resident_bytes);
    number(out, "reserved_bytes", head->reserved_bytes);
    number(out, "resident_bytes", head->resident_bytes);
    number(out, "busy_ns", head->busy_ns);
    number(out, "switch_ns", head->switch_ns);
    number(out, "switches", head->switches);
    number(out, "copy_in_ns", head->copy_ns[0]);
    number(out, "copy_out_ns", head->copy_ns[1]);
    number(out, "faulted_bytes", head->faulted_bytes);
    number(out, "evicted_bytes", head->evicted_bytes);
    number(out, "energy_mj", head->energy_mj);
    number(out, "lost", txn.area->lost);
    number(out, "pcie_slowdown", head->pcie_slowdown);
    number(out, "ecc_corrected", head->ecc_corrected);
    number(out, "ecc_uncorrected", head->ecc_uncorrected);
    number(out, "xid_count", head->xid_count);
    number(out, "bandwidth_bytes_per_s", spec->bandwidth_bytes_per_s);
    number(out, "pcie_bytes_per_s", spec->pcie_bytes_per_s);
    number(out, "slice_ns", spec->slice_ns);
    number(out, "switch_cost_ns", spec->switch_ns);
    number(out, "launch_ns", spec->launch_ns);
    number(out, "context_bytes", spec->context_bytes);
    fputs(",\"processes\":[", out);
    for (uint32_t i = 0; i < head->attached_count; i++) {
        if (i > 0)
            fputc(',', out);
        write_process(out, &txn, head->attached[i]);
    }
    fputs("]}", out);
    txn_publish(&txn);
}

void status_write(struct node *node, FILE *out)
{
    const struct node_area *area = node->area;
    fputc('{', out);
    text(out, "directory", node->dir, sizeof(node->dir));
    fputc(',', out);
    text(out, "spec", area->spec, sizeof(area->spec));
    fputc(',', out);
    text(out, "hang", area->faults.hang.where ? area->faults.hang.call : "", sizeof(area->faults.hang.call));
    number(out, "nvml_down", area->faults.nvml_down);
    number(out, "driver_epoch", area->faults.driver_epoch);
    fputs(",\"cards\":[", out);
    for (uint32_t card = 0; card < area->card_count; card++) {
        if (card > 0)
            fputc(',', out);
        write_card(out, node, (int)card);
    }
    fputs("]}", out);
}
