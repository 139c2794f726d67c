"""Who may use a GPU and when, what is billed, how much memory each may have. Events in, effects out.

engine        the door: handle(event, now) -> effects, deadlines, audits; scheduler: what each event does;
              membership: clients and tenants come, go, come back
standing      where a tenant may stand, and what may follow what; gpu: the one function that moves it
grant         the life of a client's lock, whatever messages cross; tables for each kind of client
tenant        a pod on one GPU; client: one of its processes; habits: how it works and how far it is trusted;
              account: its lag; memory, memory_share: its leases and reservations;
              claims: what of its word on memory can be true
books/        own the state of a GPU: line (who waits), floor (who has it), residence (whose memory is there),
              pace (clocks, weights, turn length), figures (what is counted), returning (after a restart),
              outside and first_fit (who waits for memory), late (who does not let go), whereabouts (pods on
              several GPUs), owners (who comes again as somebody new), agenda, idlers, window, hinted, look
policy/       decide and write no state of their own: decide (the order of things), turns (who is next),
              turn_end, gates (telling clients), billing (what a hold costs), lag (what may be owed),
              residency and slices (memory), undrained (progress), uncontended (the short way), standstill
view/         read only: snapshot, report, explain, observe (for metrics), checkpoint
deadlines     when each GPU must be looked at again; audit: whether the books are right
crowd         what concerns everybody is done now and then among many; notices: what the log says of pods
"""
