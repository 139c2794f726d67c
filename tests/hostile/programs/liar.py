"""A program that uses the card as its lock permits, and lies: liar.py LIE SOCKET POD GPU[,GPU] PROCESSES.

It speaks the protocol itself. Prints "running" when all its processes have registered, and works until it is
killed. Needs the repository and tests/simgpu/programs in PYTHONPATH.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, Final

from cuda.bindings import driver as cuda
from cuda_calls import checked, kernel, launch, open_device

from nvshare.wire.messages import MessageType
from tests.node.harness import Raw

T = MessageType
MS: Final = 1_000_000
LATE_SEC: Final = 0.3
CLAIMED_BYTES: Final = (1 << 63) - 1
PR_SET_PDEATHSIG: Final = 1


class Honest:
    """Tells how long it was busy, and lets go when it is told to."""

    def __init__(self, path: Path, pod: str, gpus: str) -> None:
        self.path, self.pod = path, pod
        self.gpu, _, self.other_gpu = gpus.partition(",")
        self.busy_ns = 0
        self.grants = 0
        self.holds = False
        self.function: Any = None  # instead of that of the first context
        self.raw = self.enlisted()

    def enlisted(self) -> Raw:
        raw = Raw(self.path)
        answer = raw.register(self.pod, self.gpu)
        assert answer.type is not T.REFUSED, answer.data
        self.grants = 0
        return raw

    def live(self, function: Any) -> None:
        self.raw.send(T.REQ_LOCK)
        while True:
            self.hear(block=not self.holds)
            if self.holds:
                start_ns = time.monotonic_ns()
                checked(launch(self.function or function))
                checked(cuda.cuCtxSynchronize())
                self.busy_ns += time.monotonic_ns() - start_ns
                self.worked()

    def hear(self, block: bool) -> None:
        self.raw.socket.setblocking(block)
        try:
            while True:
                kind = self.raw.next().type
                self.raw.socket.setblocking(False)  # what else has come
                if kind is T.LOCK_OK:
                    self.grants += 1
                    self.holds = True
                elif kind is T.DROP_LOCK:
                    self.dropped()
                elif kind is T.LEASE_RECALL:
                    self.raw.send(T.LEASE_RETURNED, arguments=(1, 0))
        except BlockingIOError:
            pass
        finally:
            self.raw.socket.setblocking(True)

    def told_ns(self) -> int:
        return self.busy_ns

    def worked(self) -> None:
        """After each kernel."""
        self.say_busy(idle_ns=0)

    def say_busy(self, idle_ns: int) -> None:
        self.raw.send(T.BUSY, arguments=(self.told_ns(), idle_ns, self.told_ns(), 0, 0, 0, 0, 0))

    def dropped(self) -> None:
        self.let_go(again=True)

    def let_go(self, again: bool) -> None:
        self.holds = False
        told_ns = self.told_ns()
        self.raw.send(T.TURN_ENDED, arguments=(told_ns, 0, 2 * MS, int(again), self.grants_read(), told_ns))

    def grants_read(self) -> int:
        """And one: 0 would mean that it does not tell."""
        return self.grants + 1


class NeverBusy(Honest):
    def told_ns(self) -> int:
        return 0


class HalfBusy(Honest):
    def told_ns(self) -> int:
        return self.busy_ns // 2


class Idle(NeverBusy):
    def worked(self) -> None:
        self.say_busy(idle_ns=10 * MS)


class HungUp(NeverBusy):
    """Has a second client, whose connection is gone for good."""

    def __init__(self, path: Path, pod: str, gpus: str) -> None:
        super().__init__(path, pod, gpus)
        self.enlisted().close()


class NeverReleasing(Honest):
    def dropped(self) -> None:
        pass


class Late(Honest):
    """Works on for 0.3 s after it was told to let go."""

    drops_ns = 0

    def dropped(self) -> None:
        self.drops_ns = time.monotonic_ns()

    def worked(self) -> None:
        super().worked()
        if self.drops_ns and time.monotonic_ns() - self.drops_ns > LATE_SEC * 1e9:
            self.drops_ns = 0
            self.let_go(again=True)


class LateOnTwoGpus(Late):
    """And holds another GPU, where it does nothing."""

    def __init__(self, path: Path, pod: str, gpus: str) -> None:
        super().__init__(path, pod, gpus)
        self.elsewhere = Raw(path)
        self.elsewhere.register(pod, self.other_gpu)
        self.elsewhere.send(T.REQ_LOCK)


class Resuming(NeverBusy):
    """Lets go when it is told to, and comes back at once, saying that it holds."""

    def dropped(self) -> None:
        self.let_go(again=False)
        former, self.raw = self.raw, Raw(self.path)
        answer = self.raw.resume(former, held_ns=1, busy_ns=0)
        assert answer.type is T.RESUMED, answer.data
        former.close()
        self.grants, self.holds = 0, True


class Reconnecting(NeverBusy):
    """Leaves instead of letting go, and comes back as somebody new."""

    def dropped(self) -> None:
        self.raw.close()
        self.holds = False
        self.raw = self.enlisted()
        self.raw.send(T.REQ_LOCK)


class Miscounting(Honest):
    """Its releases belong to another grant than it has, so none of them ends its hold."""

    def grants_read(self) -> int:
        return self.grants + 100


class Contexts(NeverBusy):
    """Has a context only while it holds, so that NVML seldom lists it."""

    context: Any = None

    def hear(self, block: bool) -> None:
        super().hear(block)
        if self.holds and self.context is None:
            self.context = checked(cuda.cuDevicePrimaryCtxRetain(self.device()))
            checked(cuda.cuCtxSetCurrent(self.context))
            self.function = kernel("sim_us_1000")

    def device(self) -> Any:
        return checked(cuda.cuDeviceGet(0))

    def let_go(self, again: bool) -> None:
        if self.context is not None:
            checked(cuda.cuDevicePrimaryCtxRelease(self.device()))
            self.context = None
        super().let_go(again)


class Mayfly(NeverBusy):
    """Ends after its hold, and another process of its kind begins."""

    def dropped(self) -> None:
        self.let_go(again=False)
        time.sleep(0.005)  # so that it is read
        os._exit(0)


class Claiming(Honest):
    """Says that it has more memory than there is."""

    def worked(self) -> None:
        super().worked()
        self.raw.send(T.MEM_USED, arguments=(CLAIMED_BYTES, 0))


LIES: Final = {
    "honest": Honest,
    "busy 0": NeverBusy,
    "half of busy": HalfBusy,
    "idle": Idle,
    "busy 0, hung up": HungUp,
    "never releasing": NeverReleasing,
    "late by 0.3 s": Late,
    "late on two GPUs": LateOnTwoGpus,
    "resume": Resuming,
    "reconnect": Reconnecting,
    "wrong grants": Miscounting,
    "claims": Claiming,
    "a context for each hold": Contexts,
    "a process for each hold": Mayfly,
}


def fork(processes: int) -> bool:
    """As many processes of us; True in the first. The others end with it."""
    first = os.getpid()
    for _ in range(processes - 1):
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            return os.getpid() == first
    return True


def breed() -> None:
    """Returns in a child, and in another one when that has ended, for ever."""
    while True:
        child = os.fork()
        if child == 0:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            return
        os.waitpid(child, 0)


def main() -> None:
    lie, path, pod, gpus, processes = sys.argv[1:]
    ready, told = os.pipe()
    first = fork(int(processes))
    if LIES[lie] is Mayfly:
        if first:
            print("running", flush=True)
        first = False
        breed()
    if LIES[lie] is Contexts:
        checked(cuda.cuInit(0))
    else:
        open_device()
    liar = LIES[lie](Path(path), pod, gpus)
    function = None if LIES[lie] is Contexts else kernel("sim_us_1000")
    os.write(told, b"x")
    if first:
        for _ in range(int(processes)):
            os.read(ready, 1)
        print("running", flush=True)
    liar.live(function)


if __name__ == "__main__":
    main()
