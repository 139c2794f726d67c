"""Who is here: registers, resumes and remembers clients, and ends them when their process does.

1. A member is one process on one GPU. It stays one while its process lives, connected or not.
2. A process's end is told by its pidfd, not by its socket, which a child may keep open.
3. A former is a member of the daemon's former life that has not come back. It may come back while its process
   lives, with the id and epoch it was given, and only from the same process.
4. Every refusal is one reason word: told to the peer, counted, and logged at a bounded rate.
5. Who comes, and what limits are set, is in the journal before anybody is answered.
6. Who lost its connection may come back while its process lives, and its memory stays charged. Its process
   may have other clients meanwhile, so that it registers says nothing; but one that has executed another
   program, that had nothing, or that was told to register afresh does not come back.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections import deque
from typing import Final

from nvshare.core import events
from nvshare.core.account import NEVER
from nvshare.core.limits import PodLimits
from nvshare.gpu.inventory import Device, GpuError, Inventory
from nvshare.node import logs, members
from nvshare.node.bounds import Bounds
from nvshare.node.connection import Connection, figure
from nvshare.node.drains import GPU_DRAINING, Drains
from nvshare.node.environment import EnvironmentLimits
from nvshare.node.fair_queue import FairQueue
from nvshare.node.former_processes import FormerProcesses
from nvshare.node.hub import Hub
from nvshare.node.journal import Came, Entry, Journal, Left, Said
from nvshare.node.members import NO_CLIENT, Ended, Member, Role
from nvshare.node.operators import Operators
from nvshare.node.places import Places
from nvshare.node.pod_owners import PodOwners
from nvshare.node.processes import Processes
from nvshare.node.request_heads import TakeRequest, refuse_request
from nvshare.node.runs import OF_ITS_USER, Runs
from nvshare.node.termination import Terminations
from nvshare.node.unregistered import Unregistered
from nvshare.pods.cgroups import HOST, Place
from nvshare.pods.identity import (
    PEER_DEAD,
    Exhausted,
    IdentityError,
    Peer,
    Process,
    command_of,
    has_hung_up,
    identify,
    owner_of,
    unseen_peer,
)
from nvshare.pods.tenancy import Tenancy
from nvshare.wire.dialects import V3
from nvshare.wire.lifecycle import State
from nvshare.wire.messages import LIMIT_SOURCES, Message, MessageType

NOBODY: Final = Peer(Process(0, 0), -1, HOST)
"""Whoever cannot be told: has no rights and no client."""
NOT_KNOWN: Final = PodLimits(memory_bytes=0, core_percent=0)
"""For whoever's pod is not known: what it was told before holds on."""


class Roster:
    def __init__(
        self, hub: Hub, inventory: Inventory, tenancy: Tenancy, bounds: Bounds, own_place: Place, epoch: int
    ) -> None:
        self.hub = hub
        self.inventory = inventory
        self.tenancy = tenancy
        self.bounds = bounds
        self.epoch = epoch
        self.members: dict[int, Member] = {}
        self.processes = Processes()
        self.formers: dict[int, Member] = {}
        self.ended: deque[Ended] = deque(maxlen=bounds.clients)  # the last ones
        self._absent: dict[Role, list[Member]] = {}  # members and formers without a connection
        self.unregistered = Unregistered(bounds)
        self._places = Places(bounds)
        self._former_processes = FormerProcesses(hub.loop, self.forget_former)
        self.runs = Runs(hub, tenancy, self._places.has_pod, self._withdraw)
        self.owners = PodOwners(hub, self.formers, self.set_limits)
        self.take_request: TakeRequest = refuse_request
        self._environment = EnvironmentLimits(hub, self._places.clients_of, self.set_limits)
        self.drains = Drains()
        self.terminations = Terminations(hub, self.members, self.formers)
        self._operators = Operators(own_place, self._obey, self.note_refused)
        self._queue = FairQueue(hub, bounds)
        self._came: dict[Role, int] = {}  # when a process last registered or resumed
        self.journal: Journal | None = None

    def everybody(self) -> list[Member]:
        """Members, then formers."""
        return [*self.members.values(), *self.formers.values()]

    # ---- connections -------------------------------------------------------------------------

    def welcome(self, connection_socket: socket.socket) -> None:
        now_ns = self.hub.clock()
        if has_hung_up(connection_socket):  # who it was costs far more to find out
            self.hub.counters.events["hung_up_unheard"] += 1
            connection_socket.close()
            return
        refusal = ""
        try:
            peer, pidfd = identify(connection_socket)
        except IdentityError as error:
            peer, pidfd, refusal = NOBODY, -1, error.reason  # if it lives, it is to read why
            if error.reason == PEER_DEAD:
                peer = unseen_peer(connection_socket)
                if not self._operators.has_right_user(peer):
                    self.note_refused(peer, error.reason, str(error))
                    connection_socket.close()
                    return
        connection = Connection(self, connection_socket, peer, pidfd, refusal)
        try:
            connection.owner = self._queue.add(connection, owner_of(peer))
        except OSError as error:
            if pidfd >= 0:
                os.close(pidfd)
            raise Exhausted(str(error)) from error
        self._find_place(connection)
        connection.handshake = self.hub.loop.call_later(
            self.bounds.handshake_ns / 1e9, self._handshake_over, connection
        )
        if pidfd >= 0:
            self.hub.loop.add_reader(pidfd, self._process_ended, connection)
        self.hub.counters.callbacks.add(self.hub.clock() - now_ns)

    def _find_place(self, connection: Connection) -> None:
        pushed_out = self.unregistered.add(connection, owner_of(connection.peer))
        if pushed_out is not None:
            self.note_refused(pushed_out.peer, "too_many_silent", "said nothing, and others came")
            pushed_out.abort()

    def _handshake_over(self, connection: Connection) -> None:
        if self.unregistered.remove(connection):
            self.note_refused(connection.peer, "handshake_timeout", "said nothing in time")
            connection.abort()

    def _leave_unregistered(self, connection: Connection) -> None:
        if connection.handshake is not None:
            connection.handshake.cancel()
            connection.handshake = None
        self.unregistered.remove(connection)

    def connection_ended(self, connection: Connection) -> None:
        if connection.refusal == PEER_DEAD and connection in self.unregistered:
            self.note_refused(connection.peer, PEER_DEAD, "said nothing")
        self._leave_unregistered(connection)
        member = self.members.get(connection.client)
        if member is None or member.connection is not connection:
            self._close_pidfd(connection.pidfd)
            connection.pidfd = -1
            return
        member.connection = None
        self.hub.counters.disconnects[connection.ended_by] += 1
        self._absent.setdefault(members.role(member), []).append(member)
        self.hub.told.pop(member.client, None)
        self.hub.feed(events.ClientDisconnected(member.client))
        self._tell("client disconnected", member)

    def _close_pidfd(self, pidfd: int) -> None:
        if pidfd >= 0:
            self.hub.loop.remove_reader(pidfd)
            os.close(pidfd)

    # ---- ends --------------------------------------------------------------------------------

    def _process_ended(self, connection: Connection) -> None:
        """The peer of a connection is dead, whoever may still have its socket."""
        member = self.members.get(connection.client)
        if member is not None and member.pidfd == connection.pidfd:
            self._member_gone(member, "process ended", "ended")
            self._withdraw_environment(member)
            connection.abort()
            return
        self._close_pidfd(connection.pidfd)
        connection.pidfd = -1
        # What it said before may be an operator's word, and has not been read yet.
        connection.refusal = connection.refusal or PEER_DEAD
        self.hub.loop.call_later(self.bounds.last_words_ns / 1e9, connection.abort)

    def _member_gone(self, member: Member, why: str, reason: str = "replaced") -> None:
        self._strike_out(member, reason)
        self.ended.append(members.ended(member))
        self.hub.feed(events.ProcessGone(member.client))
        self._tell("client gone", member, why=why)
        self.runs.forget_soon(member.pod)

    def _strike_out(self, member: Member, reason: str) -> None:
        """Out of our books, with its connection; the core is told by whoever calls."""
        del self.members[member.client]
        self.processes.leave(member, self.hub.clock())
        self._give_place_back(member)
        self.hub.told.pop(member.client, None)
        self._close_pidfd(member.pidfd)
        if member.connection is not None:
            self.hub.counters.disconnects[reason] += 1
            member.connection.pidfd = -1
            member.connection.abort()
        else:
            self._no_longer_absent(member)

    def _no_longer_absent(self, member: Member) -> None:
        role = members.role(member)
        self._absent[role].remove(member)
        if not self._absent[role]:
            del self._absent[role]

    def _withdraw_environment(self, member: Member) -> None:
        if self._places.has_pod(member.pod):
            return
        self._environment.withdraw(member.pod, members.owner(member))
        said = self.hub.scheduler.limits.said(member.pod)
        if any(source in said for source in OF_ITS_USER) and not self.tenancy.has_run(member.pod):
            self._withdraw(member.pod, OF_ITS_USER, members.owner(member))

    def _withdraw(self, pod: str, sources: tuple[str, ...], owner: str = logs.OPERATOR) -> None:
        for source in sources:
            if self.hub.scheduler.limits.said_by(pod, source) != (None, None, None):
                self.set_limits(events.LimitsSet(pod, source), owner)

    def is_here(self, pod: str) -> bool:
        """A process of it is registered, or a run."""
        return self._places.has_pod(pod) or self.tenancy.has_run(pod)

    def _take_place(self, member: Member) -> None:
        self._places.take(member)
        self.owners.count(member, 1)

    def _give_place_back(self, member: Member) -> None:
        self._places.give_back(member)
        self.owners.count(member, -1)

    def note_refused(self, peer: Peer, reason: str, detail: str) -> None:
        self.hub.counters.refused[reason] += 1
        fields = {"reason": reason, "pid": peer.process.pid, "uid": peer.uid, "detail": detail}
        self.hub.repeats.warning("refused", owner_of(peer), **fields)

    def _tell(self, words: str, member: Member, **fields: object) -> None:
        named = {"client": f"{member.client:016x}", "pod": member.pod, "gpu": member.gpu, **fields}
        self.hub.repeats.info(words, members.owner(member), **named)

    # ---- rights ------------------------------------------------------------------------------

    def trusted(self, peer: Peer) -> bool:
        """Root or our own user, in no container or in ours."""
        return self._operators.trusted(peer)

    def operate(self, connection: Connection, message: Message) -> None:
        self._leave_unregistered(connection)
        self._operators.take(connection.peer, message, connection.abort)

    def _obey(self, message: Message) -> None:
        if message.type is MessageType.SET_TQ:
            self.set_slice(int(message.data))
        else:
            self.set_scheduling(message.type is MessageType.SCHED_ON)

    def set_slice(self, seconds: int) -> None:
        self.hub.repeats.info("slice set", logs.OPERATOR, seconds=seconds)
        self.hub.feed(events.SliceSet(seconds * 1_000_000_000))

    def set_scheduling(self, on: bool) -> None:
        self.hub.repeats.info("scheduling set", logs.OPERATOR, on=on)
        self.hub.feed(events.SchedulingSet(on))

    # ---- limits ------------------------------------------------------------------------------

    def core_percent(self, client: int) -> int:
        return self.limits(self.members[client].pod).core_percent

    def limits(self, pod: str) -> PodLimits:
        return self.hub.scheduler.limits.of(pod)

    def terms(self, client: int) -> tuple[int, int, int]:
        """For TERMS."""
        member = self.members[client]
        limits, gpu = self.limits(member.pod), self.hub.scheduler.gpus.get(member.gpu)
        sources = (limits.memory_source, limits.core_source)
        memory_source, core_source = (LIMIT_SOURCES.index(source) for source in sources)
        return memory_source, core_source, gpu.residence.total_bytes if gpu is not None else 0

    def _tell_terms(self, pod: str) -> None:
        """To all of its processes."""
        for gpu in self.hub.scheduler.gpus.values():
            tenant = gpu.tenants.get(pod)
            for client in tenant.clients if tenant is not None else ():
                connection = self.hub.told.get(client)
                if connection is not None:
                    connection.tell_terms()

    def set_limits(self, word: events.LimitsSet, owner: str = logs.OPERATOR) -> PodLimits:
        """One source's word on a pod's limits; the lines are those that operators' tools look for.

        Raises ValueError, and nothing has happened.
        """
        before, after = self.limits(word.pod), self.hub.scheduler.limits.after(*word)
        self._keep_word(word)
        if after.memory_bytes != before.memory_bytes:
            words = f"Memory limit changed for pod {word.pod}"
            figures = {"from_bytes": before.memory_bytes, "to_bytes": after.memory_bytes}
            self.hub.repeats.info("Memory limit changed", owner, words, source=after.memory_source, **figures)
        if after.core_percent != before.core_percent:
            words = f"Compute limit changed for pod {word.pod}"
            figures = {"from_percent": before.core_percent, "to_percent": after.core_percent}
            self.hub.repeats.info("Compute limit changed", owner, words, source=after.core_source, **figures)
        self.hub.announcing = owner  # each connection tells what it sends, and when it does
        try:
            self.hub.feed(word)
        finally:
            self.hub.announcing = ""
        if (after.memory_source, after.core_source) != (before.memory_source, before.core_source):
            self._tell_terms(word.pod)
        return after

    def _keep_word(self, word: events.LimitsSet) -> None:
        """Once, however often it is said."""
        if self.hub.scheduler.limits.said_by(word.pod, word.source) != word[2:]:
            self._keep(Said(*word))

    def _keep(self, entry: Entry) -> None:
        if self.journal is not None:
            self.journal.append(entry)

    # ---- registering -------------------------------------------------------------------------

    def register(self, connection: Connection, message: Message) -> None:
        peer = connection.peer
        if connection.refusal:
            self._refuse(connection, connection.refusal, "its identity is unknown")
            return
        pod, passed_over = self.tenancy.tenant_of(
            peer, message.pod_namespace, message.pod_name, self.trusted(peer)
        )
        try:
            device = self._device(message.gpu_uuid, connection.dialect.version, owner_of(peer))
        except GpuError as error:
            self._refuse(connection, error.reason, f"gpu {message.gpu_uuid!r}", pod)
            return
        if passed_over:
            self.hub.counters.events["pod_claim_passed_over"] += 1
        if device.key in self.drains and not self._places.has_role((peer.process, pod, device.key)):
            self._refuse(connection, GPU_DRAINING, f"gpu {device.key}, pod {pod}", pod)
            return
        self._supersede(connection, pod, device.key)
        self.owners.apply(pod, peer)
        reason = self._places.crowded(pod, owner_of(peer), bool(peer.place.pod_uid))
        if not reason and self.owners.too_many(peer, pod):
            reason = "too_many_pods"
        if reason:
            self._refuse(connection, reason, f"pod {pod}", pod)
            return
        self.see(device)
        if message.memory_limit_bytes and connection.dialect.version >= V3.version:
            self._environment.say(pod, message.memory_limit_bytes, owner_of(peer))
        member = self._enter(connection, pod, device.key)
        self._note_came(member, self.hub.clock())
        self._keep_client(member)
        version = connection.dialect.version
        self.hub.feed(events.ClientRegistered(member.client, pod, device.key, version))
        self._registered(connection, member, "client registered")

    def _device(self, text: str, version: int, owner: str) -> Device:
        try:
            devices = self.inventory.resolve(text, owner)
        except GpuError as error:
            if error.reason != "too_many_gpus" or not self._forget_unused_gpus():
                raise
            devices = self.inventory.resolve(text, owner)
        if len(devices) > 1 and version >= V3.version:
            raise GpuError("several_gpus")  # ours has a connection for each; older ones know only one
        return devices[0]

    def _forget_unused_gpus(self) -> bool:
        """Those that clients made up and have left; whether there were any."""
        kept = self.drains
        unused = [key for key in self.inventory.believed() if key not in kept and self.hub.forget_gpu(key)]
        for key in unused:
            self.inventory.forget(key)
        return bool(unused)

    def see(self, device: Device) -> None:
        if device.key not in self.hub.scheduler.gpus:
            self.hub.feed(events.GpuSeen(device.key, device.total_bytes, device.number))

    def _refuse(self, connection: Connection, reason: str, detail: str, pod: str = "") -> None:
        """It is told what its pod may have, if that is known, and keeps to that without us."""
        self.note_refused(connection.peer, reason, detail)
        if reason == PEER_DEAD:  # it will not say anything else
            self._leave_unregistered(connection)
        connection.refuse(reason, self.limits(pod) if pod else NOT_KNOWN)

    def _enter(self, connection: Connection, pod: str, gpu: str, client: int = 0) -> Member:
        """Under an id of its own, or the one that a former daemon gave it."""
        while client in NO_CLIENT or client in self.members or client in self.formers:
            client = secrets.randbits(64)
        peer = connection.peer
        in_pod = bool(peer.place.pod_uid)
        pidfd = connection.pidfd
        terms = (in_pod, pod, gpu, self.epoch, pidfd, connection, peer.command)
        member = Member(client, peer.process, peer.uid, *terms, owner=owner_of(peer), image=peer.image)
        self.members[client] = member
        self.processes.enter(member)
        self._take_place(member)
        self.hub.told[client] = connection
        connection.become(client, pod)
        return member

    def _keep_client(self, member: Member, former: int = 0) -> None:
        whose = (*member.process, member.uid, member.in_pod, member.pod, member.gpu, member.epoch)
        came = Came(self.hub.clock(), member.client, former, *whose, owner=member.owner, image=member.image)
        self._keep(came)

    def _registered(self, connection: Connection, member: Member, words: str) -> None:
        self._leave_unregistered(connection)
        self._tell(words, member, pid=member.process.pid, dialect=connection.dialect.name)

    def _supersede(self, newcomer: Connection, pod: str, gpu: str) -> None:
        """Rule 6."""
        for absent in list(self._absent.get((newcomer.peer.process, pod, gpu), ())):
            if self._may_return(absent, newcomer):
                continue
            self._keep(Left(absent.client))
            if absent.client in self.members:
                self._member_gone(absent, "registered afresh")
            else:
                self.forget_former(absent)

    def _may_return(self, absent: Member, newcomer: Connection) -> bool:
        """With memory that is charged to it."""
        other_program = absent.image and newcomer.peer.image and absent.image != newcomer.peer.image
        if absent.gave_up or other_program or newcomer.dialect.version < V3.version:
            return False
        client = self.hub.scheduler.clients.get(absent.client)
        if client is None:  # nobody knows how much it had taken of its lease
            return self.limits(absent.pod).memory_bytes > 0
        share = client.tenant.memory.shares[absent.client]
        return bool(share.used_bytes or share.reserved_bytes)

    # ---- resuming ----------------------------------------------------------------------------

    def expect(self, former: Member) -> bool:
        """A member of the former life; False if its process is dead, or there is no place to keep for it."""
        why: object = self._places.crowded(former.pod, members.owner(former), former.in_pod)
        if not why:
            try:
                if not self._former_processes.watch(former):
                    return False
            except OSError as error:
                why = error
        if why:
            self.hub.repeats.warning(
                "a client of the previous daemon is not expected back", members.owner(former), why=why
            )
            return False
        former.command = command_of(former.process.pid)
        self.formers[former.client] = former
        self._take_place(former)
        self._absent.setdefault(members.role(former), []).append(former)
        return True

    def forget_formers(self) -> None:
        """All of them, for another roster: nobody has been told of them yet."""
        for former in self.formers.values():
            self._former_processes.forget(former)
        self.formers.clear()

    def forget_former(self, former: Member) -> None:
        if former.client not in self.formers:
            return
        self._stop_expecting(former)
        self.ended.append(members.ended(former))
        self.hub.feed(events.FormerGone(former.client, former.gpu))
        self._withdraw_environment(former)
        self.runs.forget_soon(former.pod)

    def _stop_expecting(self, former: Member) -> None:
        del self.formers[former.client]
        self._give_place_back(former)
        self._no_longer_absent(former)
        self._former_processes.forget(former)

    def resume(self, connection: Connection, message: Message) -> None:
        former = self.formers.get(message.id) or self.members.get(message.id)
        epoch, held_ns, busy_ns, used_bytes, request, reserve_seq, reserve_bytes, worked_ns = (
            message.arguments
        )
        reason = self._why_not(former, connection.peer, message.gpu_uuid, epoch)
        reason = connection.refusal or reason
        if former is None or reason:
            if former is not None and former.process == connection.peer.process:
                former.gave_up = True  # what it has it tells under another id
            self._refuse(connection, reason or "unknown_client", f"RESUME of {message.id:016x}")
            return
        restarted = former.client not in self.members
        now_ns = self.hub.clock()
        if not restarted and self._resumes_too_soon(former, connection, message, now_ns):
            return
        self._note_came(former, now_ns)
        if not restarted:
            self._strike_out(former, "replaced")  # one event: in between its pod would have less than it has
        else:
            self._stop_expecting(former)
        # After a restart it keeps its id, and so do its series.
        member = self._enter(connection, former.pod, former.gpu, former.client if restarted else 0)
        if not restarted:
            self._keep_client(member, former.client)
        self.owners.apply(member.pod, connection.peer)  # they may be others than the former daemon's
        self.hub.feed(
            events.ClientResumed(
                client=member.client,
                pod=member.pod,
                gpu=member.gpu,
                former=former.client,
                holds=held_ns > 0,
                wants=request > 0,
                busy_ns=figure(busy_ns),
                used_bytes=figure(used_bytes),
                reserve_seq=reserve_seq,
                reserve_bytes=reserve_bytes,
                worked_ns=figure(worked_ns),
            )
        )
        self._registered(connection, member, "client resumed")

    def _resumes_too_soon(
        self, former: Member, connection: Connection, message: Message, now_ns: int
    ) -> bool:
        """Whoever says that it holds works until it hears that it does not, so saying it is not for free."""
        rest_ns = self._came.get(members.role(former), -NEVER) + self.bounds.resume_every_ns - now_ns
        if rest_ns <= 0:
            return False
        self.hub.counters.events["resumes_delayed"] += 1
        delay_ms = rest_ns // 1_000_000 + 2  # the loop's timers have whole milliseconds, and may be early
        self.hub.loop.call_later(delay_ms / 1000, self._resume_at_last, connection, message)
        return True

    def _resume_at_last(self, connection: Connection, message: Message) -> None:
        if connection.owner is not None and connection.state is State.RESUMING:  # it has not gone meanwhile
            self.resume(connection, message)

    def _note_came(self, member: Member, now_ns: int) -> None:
        """It registered or resumed; that counts as one, or the former would make the latter free."""
        if len(self._came) >= self.bounds.clients:
            since_ns = now_ns - self.bounds.resume_every_ns
            self._came = {whose: at_ns for whose, at_ns in self._came.items() if at_ns > since_ns}
        self._came[members.role(member)] = now_ns

    def _why_not(self, former: Member | None, peer: Peer, gpu: str, epoch: int) -> str:
        if former is None:
            return "unknown_client"
        if former.process != peer.process:
            return "not_that_process"
        if former.epoch != epoch and former.client in self.members:
            return "wrong_epoch"  # of a former one it may be that of a daemon that wrote nothing down
        if gpu and gpu != former.gpu:
            return "wrong_gpu"
        if peer.place.pod_uid and former.pod != f"pod:{peer.place.pod_uid}":
            return "wrong_pod"
        return ""

    def say_ending(self) -> None:
        """To all clients, so that who waits for the GPU runs on at once."""
        for connection in list(self.hub.told.values()):
            connection.say_ending()

    def close(self) -> None:
        for connection in [*self.unregistered, *(m.connection for m in self.members.values())]:
            if connection is not None:
                connection.abort()
