"""``paretune tune``: a study from its file to its frontier, in one command."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column

from api import render
from api.database import open_ownership, open_repository
from api.picture import save_picture
from api.reading import Reading, read_study
from api.settings import Settings
from api.submission import new_study
from tuner.errors import ClusterUnavailable, NoRecommendation
from tuner.policy import DEFAULT_POLICIES
from tuner.spec import StudySpec
from tuner.states import StudyEvent, StudyState, TrialState
from tuner.store.records import StudyRecord, TrialRecord
from tuner.store.repository import Repository
from workers.ray_cluster import RayCluster

_LOOK_S = 0.25


def tune(spec: StudySpec, settings: Settings, notes: Console) -> Reading:
    """Create the study, or take it up where it stands, work on it until it ends, and read what it found.

    Args:
        spec: The study.
        settings: Where the database and the cluster are.
        notes: Console for progress.

    Raises:
        InvalidInput: The study cannot be run as written; nothing was stored.
        ClusterUnavailable: Ray cannot be reached or has too few GPUs; nothing was stored.
        Conflict: A study of this name has another spec.
    """
    submission = new_study(spec)
    world = spec.hardware().world_size
    repository = open_repository(settings.database_url)
    known = repository.find_study(spec.name)
    if known is not None and known.state.is_final:
        record, _ = repository.create_study(submission)
        notes.print(f"study {record.name} is {record.state} already; `paretune delete {record.name}` to measure afresh")
        return read_study(repository, record.id)
    local_gpus = settings.local_gpus or world * spec.parallel_launches
    with RayCluster(settings.ray_address, local_gpus).connected() as cluster:
        if cluster.gpus() < world:
            raise ClusterUnavailable(
                f"cluster: nodes * gpus_per_node = {world} GPUs are needed, and the Ray cluster has {cluster.gpus()}"
            )
        record, created = repository.create_study(submission)
        if not created:
            notes.print(f"study {record.name} exists; going on where it stands")
        if record.state is StudyState.paused:
            repository.act(record.id, StudyEvent.resume)
        _work(repository, record, cluster, settings, notes)
    return read_study(repository, record.id)


def show_findings(reading: Reading, output: Console, notes: Console, picture: Path | None) -> None:
    """Print the frontier and the recommendations, and draw the picture.

    Args:
        reading: The study.
        output: Console for the findings.
        notes: Console for what was written where.
        picture: Where to write the PNG; ``None`` for none.
    """
    answer = reading.frontier()
    output.print(render.frontier_table(answer))
    plot = render.frontier_plot(answer, colors=output.is_terminal)
    if plot:
        print(plot, file=output.file)
    for policy in DEFAULT_POLICIES:
        try:
            output.print(render.recommendation(reading.recommendation(policy)))
        except NoRecommendation as error:
            output.print(f"{policy}: {error}")
    if picture is not None and len(answer.objectives) == 2 and answer.frontier:
        save_picture(answer, picture)
        notes.print(f"picture: {picture}")


def _work(repository: Repository, record: StudyRecord, cluster: RayCluster, settings: Settings, notes: Console) -> None:
    from api.dispatching import make_dispatcher

    word = render.provenance(record.spec["runner"]["kind"])
    columns = (
        BarColumn(bar_width=16, table_column=Column(min_width=16)),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TextColumn("hypervolume {task.fields[hypervolume]:.4f}", table_column=Column(no_wrap=True)),
        TimeElapsedColumn(table_column=Column(no_wrap=True)),
        # The rest of the line, however narrow: the last trial is the first to be cut.
        TextColumn("{task.fields[last]}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
    )
    notes.print(record.name + (f" ({word})" if word else ""))
    with Progress(*columns, console=notes, expand=True) as progress:
        task = progress.add_task("trials", total=record.spec["budget"]["trials"], hypervolume=0.0, last="")
        last: list[TrialRecord] = []

        def show() -> None:
            result = read_study(repository, record.id).result
            shown = _in_one_line(last[-1]) if last else ""
            progress.update(task, completed=len(result.hypervolumes), hypervolume=result.hypervolume, last=shown)

        store = open_ownership(settings.database_url)
        dispatcher = make_dispatcher(store, cluster, lambda _, trial: last.append(trial), only=record.id)
        dispatcher.run(_until_final(repository, record.id, show))
        show()
        store.close()


def _until_final(repository: Repository, study_id: str, show: Callable[[], None]) -> Callable[[], bool]:
    """Look at the study now and then, whoever works on it, and say when it has ended."""
    looked_s, revision, final = 0.0, -1, False

    def until() -> bool:
        nonlocal looked_s, revision, final
        if time.monotonic() - looked_s >= _LOOK_S:
            looked_s = time.monotonic()
            record = repository.study(study_id)
            if record.revision != revision:
                show()
            revision, final = record.revision, record.state.is_final
        return final

    return until


def _in_one_line(trial: TrialRecord) -> str:
    configuration = str(trial.configuration)
    if trial.measurement is None:
        return f"{configuration}: {trial.failure_kind or TrialState(trial.state)}"
    energy_j = trial.measurement.energy_j
    energy = "" if energy_j is None else f", {render.figures(energy_j / 1e3)} kJ"
    return f"{configuration}: {render.figures(trial.measurement.step_time_s)} s{energy}"
