"""TensorBoard: event files in RUN/tensorboard, one for each process that worked on the run. Needs no TensorFlow.

A file begins with the step from which on earlier files no longer count (`SessionLog.START`, which TensorBoard calls
purging), so a generation that was made again, or sent twice because of a kill, is shown once.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event, SessionLog, SourceMetadata
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from populora_core.runs.run import Run
from populora_core.support import durable
from populora_plugins.trackers.log import Kept
from populora_plugins.trackers.once import Once

FOLDER = "tensorboard"
FILES = "events.out.tfevents.[0-9]*.populora"


def tracker(run: Run) -> Once:
    """Follow the run in event files."""
    return Once("tensorboard", run, open_tensorboard)


def open_tensorboard(run: Run, kept: Kept) -> TensorBoard:
    """Go on in the same folder."""
    id = kept.id or FOLDER
    folder = run.directory / id
    return TensorBoard(id, folder, kept.agreed if any(folder.glob(FILES)) else 0)


class TensorBoard:
    """An event file that is being written."""

    def __init__(self, id: str, folder: Path, holds: int) -> None:
        self.id, self.holds = id, holds
        with durable.writing(folder):
            folder.mkdir(exist_ok=True)
            # TensorBoard reads files in the order of their names; numbers, unlike times, never meet.
            last = max((int(path.name.split(".")[3]) for path in folder.glob(FILES)), default=0)
            self._file = (folder / f"events.out.tfevents.{last + 1:010d}.populora").open("xb")
        self._folder = folder
        self._writer = RecordWriter(self._file)
        self._write(file_version="brain.Event:2", source_metadata=SourceMetadata(writer="populora"))
        self._write(step=holds + 1, session_log=SessionLog(status=SessionLog.START))

    def tell(self, generation: int, figures: Mapping[str, float]) -> None:
        values = [Summary.Value(tag=name, simple_value=value) for name, value in figures.items()]
        self._write(step=generation, summary=Summary(value=values))
        self.holds = generation

    def flush(self) -> None:
        with durable.writing(self._folder):
            self._writer.flush()

    def close(self) -> None:
        with durable.writing(self._folder):
            self._writer.close()

    def _write(self, **event: object) -> None:
        with durable.writing(self._folder):
            self._writer.write(Event(wall_time=time.time(), **event).SerializeToString())
