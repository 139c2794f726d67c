"""Decides which tenant may use a GPU and when, what is billed, and how much memory each may have.

Pure: events in, effects out.

engine           the entry point: handle(event, now) -> effects, deadlines, audits
scheduler        what each event does; membership: clients and tenants come, go and resume;
                 restart: taking over from the previous daemon
events, effects  what happens outside, and what the core wants done
tenant           a pod on one GPU; client: one of its processes; tenant_state: its states and the transitions
                 between them; account: its lag; habits: how it works; disputes: what NVML contradicts
gpu              the books of one GPU, and the one function that moves a tenant from state to state
grant            the life of a client's lock, whichever messages cross; one table for each kind of client
memory           leases and reservations of a pod: memory_share (one process), memory_requests (those that
                 wait for an answer), memory_claims (how much of what processes report can be true)
limit_sources    which of several sources sets a pod's limits; settings, units, spelling: what people write
books/           own the state of a GPU
  turn_queue         tenants that wait for a turn; memory_queue, first_fit: those that wait for memory
  occupants          tenants that have the GPU; recent_holders: those that had it, for NVML's samples
  resident_set       tenants whose memory may be on the GPU; undrained_memory: late tenants' memory
  pace               virtual clocks, weights, length of turns; owner_debts: debts of users
  gpu_time           how long the GPU worked for each client; time_slots, shared_time: overlapping work
  figures            counters of a GPU; pod_figures: of a pod; histogram, usage_window
  idle_tenants       when idle tenants expire; resuming_clients: clients of the previous daemon
  pod_gpus           the GPUs of each pod; sent_hints: the hints that clients have
  gpu_deadline       when a GPU needs attention; tenant_deadlines: the same for tenants
policy/          decide, and own no state
  decide             everything that is due on a GPU, in order
  turns              which tenant runs next; turn_end: when a turn ends; gates: opening and closing
  billing            what a hold costs; nvml_billing: what NVML says about it; lag: what may be owed
  memory_admission   whose memory may be on the GPU; memory_slices: when that changes; memory_reports
  undrained          progress before accuracy; uncontended: the fast path; standstill: the daemon was stopped
  hints              what clients should know about others
view/            read only: snapshot and report, explain, observe (for metrics), checkpoint
deadlines        the next deadline of all GPUs; audit: whether the books agree with each other
fan_out          how often work that concerns many clients is repeated; violations: of pods, for the log
"""
