"""Registers clients, and resumes those that lost their connection or their daemon.

1. A client may resume while its process lives, with the id and epoch it was given, and only from the same
   process.
2. A new client is in the journal before it is answered.
3. A process may have several clients, so an absent member stays although its process registers another one.
   But it is replaced if the process executes another program, if it had no memory, or if the daemon asked
   it to register afresh.
4. A client that says it holds the GPU works until it hears that it does not. So it resumes once a second at
   most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nvshare.core import events
from nvshare.core.account import NEVER
from nvshare.gpu.inventory import GpuError
from nvshare.node.connection import Connection, figure
from nvshare.node.drains import GPU_DRAINING
from nvshare.node.journal import ClientAdded, ClientRemoved
from nvshare.node.member import Member, Role
from nvshare.node.unknown_pods import POD_UNKNOWN
from nvshare.pods.peer import Peer
from nvshare.pods.tenant_name import TenantName
from nvshare.wire.dialects import V3
from nvshare.wire.lifecycle import State
from nvshare.wire.messages import Message

if TYPE_CHECKING:
    from nvshare.node.scheduler_node import SchedulerNode


class Registration:
    def __init__(self, node: SchedulerNode) -> None:
        self._node = node
        self._dispatcher = node.dispatcher
        self._members = node.members
        self._bounds = node.bounds
        self._admission = node.admission
        self._claims: set[tuple[str, tuple[str, str]]] = (
            set()
        )  # that were logged, with the pods that made them
        self._admitted_ns: dict[Role, int] = {}  # when a process last registered or resumed

    # ---- registering -------------------------------------------------------------------------

    def register(self, connection: Connection, message: Message) -> None:
        node, peer, version = self._node, connection.peer, connection.dialect.version
        if connection.refusal:
            self._admission.refuse(connection, connection.refusal, "its identity is unknown")
            return
        tenant, claim_ignored = node.tenancy.tenant_of(
            peer, message.pod_namespace, message.pod_name, self._admission.trusted(peer)
        )
        pod = tenant.key
        if self._waits_for_pod(connection, message, tenant):
            return
        try:
            device = node.gpus.resolve(message.gpu_uuid, version, peer.owner)
        except GpuError as error:
            self._admission.refuse(connection, error.reason, f"gpu {message.gpu_uuid!r}", pod)
            return
        if claim_ignored:
            self._note_claim(peer, pod, message)
        role = (peer.process, pod, device.key)
        if device.key in node.drains and not self._members.capacity.has_role(role):
            self._admission.refuse(connection, GPU_DRAINING, f"gpu {device.key}, pod {pod}", pod)
            return
        self._replace_absent(connection, role)
        self._members.owners.apply(pod, peer)
        if node.kubernetes is not None and tenant.pod_uid:
            node.kubernetes.apply(pod, registers=True)
        reason = self._no_room(peer, pod)
        if reason:
            self._admission.refuse(connection, reason, f"pod {pod}", pod)
            return
        node.gpus.introduce(device)
        if message.memory_limit_bytes and version >= V3.version:
            self._members.environment.state(pod, message.memory_limit_bytes, peer.owner)
        member = self._enter(connection, pod, device.key)
        self._note_admitted(member, self._dispatcher.clock())
        self._record(member)
        self._dispatcher.feed(
            events.ClientRegistered(member.client, pod, device.key, version, owner=member.debtor)
        )
        self._registered(connection, member, "client registered")

    def _waits_for_pod(self, connection: Connection, message: Message, tenant: TenantName) -> bool:
        """Until a Kubernetes pod is known, for a moment at most: see ``unknown_pods``."""
        kubernetes = self._node.kubernetes
        if kubernetes is None or not tenant.pod_uid or kubernetes.is_settled(tenant.key):
            return False

        def resume(permitted: bool) -> None:
            if connection.owner is None or connection.state is not State.REGISTERING:
                return  # it has left meanwhile
            if permitted or connection.refusal:
                self.register(connection, message)
            else:
                self._admission.refuse(connection, POD_UNKNOWN, f"pod {tenant.key}", tenant.key)

        return kubernetes.unknown.must_wait(tenant.pod_uid, resume)

    def _note_claim(self, peer: Peer, pod: str, message: Message) -> None:
        """A client named another pod than the kernel does, which is ignored."""
        known = self._node.kubernetes.known(pod) if self._node.kubernetes is not None else None
        claim = (message.pod_namespace, message.pod_name)
        if known is not None and claim == (known.namespace, known.name):
            return
        self._dispatcher.counters.events["pod_claims_ignored"] += 1
        if len(self._claims) >= self._bounds.clients:
            self._claims.clear()
        if (pod, claim) not in self._claims:  # one line for all processes that say the same
            self._claims.add((pod, claim))
            words = "a process claims to be in another pod, which is ignored"
            fields = {"claimed": "/".join(claim), "pid": peer.process.pid}
            self._dispatcher.repeats.warning(words, peer.owner, pod=self._node.display(pod), **fields)

    def _no_room(self, peer: Peer, pod: str) -> str:
        """The reason why one more client cannot be registered; empty if it can."""
        reason = self._members.capacity.exceeded(pod, peer.owner, bool(peer.place.pod_uid))
        if not reason and self._members.owners.too_many(peer, pod):
            reason = "too_many_pods"
        return reason

    def _enter(self, connection: Connection, pod: str, gpu: str, client: int = 0) -> Member:
        """Under the given id, else under a new one."""
        peer = connection.peer
        member = Member(
            client or self._members.unused_id(),
            peer.process,
            peer.uid,
            bool(peer.place.pod_uid),
            pod,
            gpu,
            self._node.epoch,
            connection.pidfd,
            connection,
            peer.command,
            owner=peer.owner,
            image=peer.image,
        )
        self._members.add(member, connection)
        return member

    def _record(self, member: Member, replaced: int = 0) -> None:
        self._node.record(
            ClientAdded(
                self._dispatcher.clock(),
                member.client,
                replaced,
                *member.process,
                member.uid,
                member.in_pod,
                member.pod,
                member.gpu,
                member.epoch,
                owner=member.owner,
                image=member.image,
            )
        )

    def _registered(self, connection: Connection, member: Member, words: str) -> None:
        self._admission.leave_unregistered(connection)
        self._members.log(words, member, pid=member.process.pid, dialect=connection.dialect.name)

    def _replace_absent(self, newcomer: Connection, role: Role) -> None:
        """Rule 3."""
        for absent in self._members.absent(role):
            if self._may_return(absent, newcomer):
                continue
            self._node.record(ClientRemoved(absent.client))
            if absent.client in self._members.registered:
                self._members.end(absent, "registered afresh")
            else:
                self._members.forget(absent)

    def _may_return(self, absent: Member, newcomer: Connection) -> bool:
        """It has memory charged to it, and its program may still resume it."""
        other_program = absent.image and newcomer.peer.image and absent.image != newcomer.peer.image
        if absent.gave_up or other_program or newcomer.dialect.version < V3.version:
            return False
        client = self._dispatcher.scheduler.clients.get(absent.client)
        if client is None:  # nobody knows how much of its lease it had used
            return self._node.limits.of(absent.pod).memory_bytes > 0
        share = client.tenant.memory.shares[absent.client]
        return bool(share.used_bytes or share.reserved_bytes)

    # ---- resuming ----------------------------------------------------------------------------

    def resume(self, connection: Connection, message: Message) -> None:
        known = self._members.expected.get(message.id) or self._members.registered.get(message.id)
        epoch = message.arguments[0]
        reason = connection.refusal or self._why_not(known, connection.peer, message.gpu_uuid, epoch)
        if known is None or reason:
            if known is not None and known.process == connection.peer.process:
                known.gave_up = True  # its process reports what it has under a new id
            self._admission.refuse(connection, reason or "unknown_client", f"RESUME of {message.id:016x}")
            return
        restarted = known.client not in self._members.registered
        now_ns = self._dispatcher.clock()
        if not restarted and self._resumes_too_soon(known, connection, message, now_ns):
            return
        self._note_admitted(known, now_ns)
        if restarted:
            self._members.stop_expecting(known)
        else:  # without an event of its own: in between its pod would have less memory than it has
            self._members.remove(known, "replaced")
        # After a restart of the daemon a client keeps its id, and so do its series.
        member = self._enter(connection, known.pod, known.gpu, known.client if restarted else 0)
        if not restarted:
            self._record(member, known.client)
        self._members.owners.apply(member.pod, connection.peer)  # the settings may have changed
        if self._node.kubernetes is not None and member.in_pod:
            self._node.kubernetes.apply(member.pod)
        self._dispatcher.feed(_resumed(member, known.client, message.arguments))
        self._registered(connection, member, "client resumed")

    def _resumes_too_soon(self, known: Member, connection: Connection, message: Message, now_ns: int) -> bool:
        """Rule 4."""
        rest_ns = self._admitted_ns.get(known.role, -NEVER) + self._bounds.resume_every_ns - now_ns
        if rest_ns <= 0:
            return False
        self._dispatcher.counters.events["resumes_delayed"] += 1
        delay_ms = rest_ns // 1_000_000 + 2  # the loop's timers have whole milliseconds, and may be early
        self._dispatcher.loop.call_later(delay_ms / 1000, self._resume_later, connection, message)
        return True

    def _resume_later(self, connection: Connection, message: Message) -> None:
        if connection.owner is not None and connection.state is State.RESUMING:  # it has not left meanwhile
            self.resume(connection, message)

    def _note_admitted(self, member: Member, now_ns: int) -> None:
        """Registering counts like resuming, or it would make resuming free."""
        if len(self._admitted_ns) >= self._bounds.clients:
            since_ns = now_ns - self._bounds.resume_every_ns
            self._admitted_ns = {role: at_ns for role, at_ns in self._admitted_ns.items() if at_ns > since_ns}
        self._admitted_ns[member.role] = now_ns

    def _why_not(self, known: Member | None, peer: Peer, gpu: str, epoch: int) -> str:
        """The reason why a client cannot resume; empty if it can."""
        if known is None:
            return "unknown_client"
        if known.process != peer.process:
            return "not_that_process"
        if known.epoch != epoch and known.client in self._members.registered:
            return "wrong_epoch"  # an expected member may have that of a daemon that wrote no checkpoint
        if gpu and gpu != known.gpu:
            return "wrong_gpu"
        tenant = TenantName.of_place(peer.place)
        if tenant is not None and peer.place.pod_uid and known.pod != tenant.key:
            return "wrong_pod"
        return ""


def _resumed(member: Member, replaced: int, arguments: tuple[int, ...]) -> events.ClientResumed:
    _epoch, held_ns, busy_ns, used_bytes, request, reserve_seq, reserve_bytes, worked_ns = arguments
    return events.ClientResumed(
        client=member.client,
        pod=member.pod,
        gpu=member.gpu,
        previous=replaced,
        holds=held_ns > 0,
        wants=request > 0,
        busy_ns=figure(busy_ns),
        used_bytes=figure(used_bytes),
        reserve_seq=reserve_seq,
        reserve_bytes=reserve_bytes,
        worked_ns=figure(worked_ns),
        owner=member.debtor,
    )
