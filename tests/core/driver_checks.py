"""What a snapshot of the core must agree with: who holds beside whom, what the clients know, who waits.

Rules:
1. At most one tenant with a quota has an open gate on a GPU, and beside it only tenants that fill its gaps:
   those without a quota whose kernels take at most 0.3 ms. Tenants that are draining or late do not count.
2. The memory of all tenants with open gates fits, unless there is only one of them.
3. In serial mode two tenants without quotas run together no longer than the longest slice takes to end.
4. The snapshot shows each client in the state that it was told of.
5. A pod is charged at least what it uses and at most what it could have allocated.
6. While scheduling is off nobody holds, waits, drains or is late; everybody was told.
7. A question about memory is answered within twice the time that a recalled lease has to come back.
8. Whatever a client says that it has allocated and may have is believed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .driver_views import MS, SECOND, ClientView, TenantView

if TYPE_CHECKING:
    from .driver_world import World

GAP_KERNEL_NS: Final = 3 * MS // 10
ANSWER_NS: Final = 10 * SECOND


def check_company(world: World, gpus: set[str]) -> None:
    """Rules 1 to 3, where the clients' own view leaves a doubt."""
    for gpu in gpus:
        running = [tenant for tenant in world.by_gpu[gpu] if tenant.open]
        if len(running) < 2:
            continue
        usable_bytes = world.gpus[gpu] * (100 - world.settings.memory_reserve_percent) // 100
        doubt = any(tenant.percent < 100 for tenant in running)
        if doubt or sum(tenant.used_bytes() for tenant in running) > usable_bytes:
            snapshot = world.core.snapshot(world.now_ns)
            _check_together(world, next(one for one in snapshot.gpus if one.gpu == gpu))


def check_all(world: World) -> None:
    """Everything that a snapshot is needed for."""
    snapshot = world.core.snapshot(world.now_ns)
    if snapshot.scheduling_on != world.on:
        world.broken("snapshot", f"scheduling is shown as {snapshot.scheduling_on}")
    seen: set[int] = set()
    for gpu in snapshot.gpus:
        _check_together(world, gpu)
        _check_counts(world, gpu)
        for tenant in gpu.tenants:
            for shown in tenant.clients:
                seen.add(shown.client)
                _check_client(world, tenant, shown)
    if seen != world.clients.keys():
        world.broken("snapshot", f"clients that differ: {seen ^ world.clients.keys()}")
    health = getattr(world.core, "health", None)
    if health is not None and (health.books_wrong or health.clock_went_back):
        world.broken("books", f"the core itself says: {health.last_fault}")
    for name, books in getattr(world.core, "gpus", {}).items():
        for tenant in books.tenants.values():
            if tenant.figures.claims_cut:
                text = f"{tenant.figures.claims_cut} words of {tenant.pod} on {name} were not believed"
                world.broken("claims", text)
    for client in world.clients.values():
        for seq, (_, asked_ns) in client.asking.items():
            if world.now_ns - asked_ns > ANSWER_NS and client.connected:
                world.broken("no answer", f"{client.key} has asked for memory ({seq}) since {asked_ns}")


def check_switched(world: World) -> None:
    """Rule 6, right after scheduling was turned on or off."""
    for client in world.clients.values():
        if client.connected and client.told_on != world.on:
            world.broken("off", f"{client.key} was not told that scheduling is {world.on}")
    for gpu in world.core.snapshot(world.now_ns).gpus:
        waiting = gpu.running_clients + gpu.request_queue_clients + gpu.wait_queue_clients
        left = [tenant.pod for tenant in gpu.tenants if tenant.late or tenant.pending_drop]
        if not world.on and (waiting or left):
            world.broken("off", f"{gpu.gpu}: {waiting} clients hold or wait, {left} drain or are late")


def _check_together(world: World, gpu: Any) -> None:
    running = [
        tenant
        for tenant in gpu.tenants
        if not tenant.pending_drop and any(client.state == "running" for client in tenant.clients)
    ]
    if len(running) < 2:
        world.together_since_ns.pop(gpu.gpu, None)
        return
    names = [tenant.pod for tenant in running]
    limited = [tenant.pod for tenant in running if tenant.core_percent < 100]
    free = [tenant.pod for tenant in running if tenant.core_percent == 100]
    if len(limited) > 1:
        world.broken("exclusive", f"{limited} have quotas and hold {gpu.gpu} together")
    for pod in free if limited else ():
        kernel_ns = world.tenants[pod, gpu.gpu].kernel_at_grant_ns
        if not 0 < kernel_ns <= GAP_KERNEL_NS:
            world.broken("exclusive", f"{pod} runs beside {limited} on {gpu.gpu}, kernels of {kernel_ns} ns")
    used_bytes = sum(tenant.used_bytes for tenant in running)
    drains = any(tenant.pending_drop for tenant in gpu.tenants)  # room is made when that has ended
    if used_bytes > gpu.safe_limit_bytes and not drains:
        text = f"{names} run together with {used_bytes} bytes, {gpu.safe_limit_bytes} fit"
        world.broken("fits", f"{text} on {gpu.gpu}")
    _check_serial(world, gpu.gpu, free)


def _check_serial(world: World, gpu: str, free: list[str]) -> None:
    settings = world.settings
    if len(free) < 2 or settings.scheduling_mode != "serial":
        world.together_since_ns.pop(gpu, None)
        return
    longest_ns = settings.max_runtime_ns + settings.drop_timeout_ns + 2 * settings.drain_grace_ns
    since_ns = world.together_since_ns.setdefault(gpu, world.now_ns)
    if world.now_ns - since_ns > longest_ns:
        world.broken("serial", f"{free} run together on {gpu}, and have since {since_ns}")


def _check_counts(world: World, gpu: Any) -> None:
    here = [client for client in world.clients.values() if client.tenant.gpu == gpu.gpu]
    holding = sum(client.holds for client in here)
    waiting = sum(client.wants and not client.holds for client in here)
    if gpu.running_clients != holding:
        world.broken("snapshot", f"{gpu.running_clients} clients are shown running, not {holding}")
    shown = gpu.request_queue_clients + gpu.wait_queue_clients
    if shown != waiting:
        world.broken("snapshot", f"{shown} clients are shown waiting, not {waiting}")


def _check_client(world: World, tenant: Any, shown: Any) -> None:
    client = world.clients.get(shown.client)
    if client is None:
        return  # whoever calls compares the sets
    state = _state(client, world.on)
    if client.holds and tenant.unresponsive and shown.state == "unresponsive":
        state = shown.state
    if shown.state != state:
        world.broken("snapshot", f"{shown.client} is shown {shown.state}, and knows it is {state}")
    if client.connected and client.told_percent != tenant.core_percent:
        text = f"was told {client.told_percent} %, and has {tenant.core_percent}"
        world.broken("told percent", f"{shown.client} of {tenant.pod} {text}")
    if tenant.core_percent != client.tenant.percent or tenant.memory_limit_bytes != client.tenant.limit_bytes:
        said = (client.tenant.percent, client.tenant.limit_bytes)
        world.broken("limits", f"{tenant.pod}: {tenant.core_percent} %, {tenant.memory_limit_bytes}: {said}")
    _check_charge(world, tenant, client.tenant)


def _check_charge(world: World, shown: Any, tenant: TenantView) -> None:
    possible_bytes = tenant.possible_bytes() + len(tenant.clients)  # where none is told as one byte
    wrong = shown.charged_bytes < shown.used_bytes
    if not any(client.leased for client in tenant.clients.values()):  # a lease may have shrunk since
        wrong = wrong or shown.charged_bytes > possible_bytes
    if shown.debt_ns < 0 or shown.used_bytes != tenant.used_bytes() or (shown.memory_limit_bytes and wrong):
        text = f"charged {shown.charged_bytes}, used {shown.used_bytes}, debt {shown.debt_ns}"
        world.broken("books", f"{shown.pod}: {text}, could have {possible_bytes}")


def _state(client: ClientView, scheduling_on: bool) -> str:
    if not client.connected:
        return "gone"
    if client.dropping:
        return "draining"
    if client.holds:
        return "running"
    if client.wants:
        return "waiting"
    return "idle" if scheduling_on else "ungated"
