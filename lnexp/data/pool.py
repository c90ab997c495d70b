"""The same work on many chunks, on all cores: results in order, only a few chunks in memory at a time."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


class Pool:
    """Worker processes, started when there is a second chunk; a small corpus never pays for them."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._executor: ProcessPoolExecutor | None = None

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        if self._executor:
            self._executor.shutdown(wait=True, cancel_futures=True)

    def each(self, work: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """Give work(task) for each task, in their order."""
        rest = iter(tasks)
        head = list(islice(rest, 2))
        if self._workers < 2 or len(head) < 2:
            yield from map(work, chain(head, rest))
            return
        if not self._executor:
            context = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang
            self._executor = ProcessPoolExecutor(self._workers, context, _follow_parent)
        waiting: deque[Future[Result]] = deque()
        try:
            for task in chain(head, rest):
                waiting.append(self._executor.submit(work, task))
                if len(waiting) > 2 * self._workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool:
            why = "a worker process was killed (is there memory enough?)"
            raise ChildProcessError(f"data: {why}: run the command again, it goes on where it was") from None


def _follow_parent() -> None:
    """End with the parent, however it ends, and leave Ctrl-C to it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
