"""The command line: ``paretune``."""

from __future__ import annotations

import logging
import os
import signal
import sys
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from pydantic import BaseModel
from rich.console import RenderableType

from api import render
from api.database import open_ownership, open_repository
from api.reading import layouts_answer, read_study, study_detail
from api.schemas import StudiesAnswer, StudyAnswer, TrialAnswer, TrialsAnswer
from api.settings import Settings, load_settings
from api.studyfile import load_study
from api.submission import new_study
from api.writing import writing
from tuner.errors import ParetuneError
from tuner.policy import Policy, PolicyKind
from tuner.states import StudyEvent
from tuner.store.migrate import head_revision, upgrade

app = typer.Typer(
    name="paretune",
    help="Find the time-energy Pareto frontier of an LLM training job over parallel layout and GPU frequency.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
StudyFile = Annotated[Path, typer.Argument(help="A study file, YAML or JSON.", metavar="STUDY.yaml")]
StudyName = Annotated[str, typer.Argument(help="A study's name or id.", metavar="NAME")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, as the service answers it.")]
RayAddress = Annotated[
    str | None, typer.Option("--ray-address", help="A running Ray cluster; a local one is started by default.")
]
_SERVE_GPUS = 64
INTERRUPTED = 130


class ExportFormat(StrEnum):
    """How trials are exported."""

    csv = "csv"
    json = "json"


@app.command()
def tune(
    study: StudyFile,
    ray_address: RayAddress = None,
    picture: Annotated[Path | None, typer.Option(help="Where the PNG goes; NAME.png by default.")] = None,
    as_json: AsJson = False,
) -> None:
    """Run a study to its end and show its frontier; one that exists is taken up where it stands."""
    from api.tune import show_findings
    from api.tune import tune as run

    spec = load_study(study)
    notes = render.make_console(stderr=True)
    reading = run(spec, _settings(ray_address=ray_address), notes)
    if as_json:
        _print_json(reading.frontier())
        return
    show_findings(reading, render.make_console(), notes, picture or Path(f"{spec.name}.png"))


@app.command()
def serve(
    study: Annotated[
        list[Path] | None, typer.Argument(help="Study files to be there from the start.", metavar="[STUDY.yaml ...]")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 picks a free one.")] = None,
    dispatcher: Annotated[bool, typer.Option(help="Also start a dispatcher.")] = True,
) -> None:
    """Serve the API and the page, with a dispatcher beside them."""
    from api.serving import serve as run

    settings = _settings(host=host, port=port)
    specs = [load_study(path) for path in study or ()]
    repository = open_repository(settings.database_url)
    for spec in specs:
        repository.create_study(new_study(spec))
    _log_to_stderr()
    run(repository, settings, render.make_console(stderr=True), with_dispatcher=dispatcher)


@app.command()
def dispatch(
    ray_address: RayAddress = None,
    parent: Annotated[int | None, typer.Option(hidden=True, help="End when this process does.")] = None,
) -> None:
    """Work on every study in the database until interrupted."""
    from api.dispatching import make_dispatcher
    from workers.ray_cluster import RayCluster

    _log_to_stderr()
    settings = _settings(ray_address=ray_address)
    store = open_ownership(settings.database_url)
    stopping = False

    def stop(_: int, __: FrameType | None) -> None:
        nonlocal stopping
        stopping = True

    with RayCluster(settings.ray_address, settings.local_gpus or _SERVE_GPUS).connected() as cluster:
        # After Ray has set its own handler, which prints a stack for an orderly end.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        make_dispatcher(store, cluster).run(lambda: stopping or (parent is not None and os.getppid() != parent))
    store.close()


@app.command()
def studies(as_json: AsJson = False) -> None:
    """List the studies, newest first."""
    records, following = open_repository(_settings().database_url).studies(limit=500)
    answer = StudiesAnswer(studies=[StudyAnswer.of(record) for record in records], next=following)
    _print(answer, render.studies_table(answer), as_json=as_json)


@app.command()
def show(name: StudyName, as_json: AsJson = False) -> None:
    """Show one study: its state, its space and what it cost."""
    answer = study_detail(open_repository(_settings().database_url), name)
    _print(answer, render.study_table(answer), as_json=as_json)


@app.command()
def frontier(name: StudyName, as_json: AsJson = False) -> None:
    """Show a study's frontier."""
    answer = read_study(open_repository(_settings().database_url), name).frontier()
    _print(answer, render.frontier_table(answer), as_json=as_json)


@app.command()
def recommend(
    name: StudyName,
    policy: Annotated[PolicyKind, typer.Option(help="What to look for.")] = PolicyKind.least_energy,
    max_slowdown: Annotated[float | None, typer.Option(help="0.05 allows 5 % more time than the baseline.")] = None,
    max_average_power_w: Annotated[float | None, typer.Option(help="Average power of the whole launch.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print the configuration to run; exit code 3 where none satisfies the policy."""
    chosen = Policy(kind=policy, max_slowdown=max_slowdown, max_average_power_w=max_average_power_w)
    answer = read_study(open_repository(_settings().database_url), name).recommendation(chosen)
    _print(answer, render.recommendation(answer), as_json=as_json)


@app.command()
def layouts(study: StudyFile, as_json: AsJson = False) -> None:
    """List a study's valid layouts, and the refused ones with their reasons; nothing is run or stored."""
    answer = layouts_answer(load_study(study))
    _print(answer, render.layouts_table(answer), as_json=as_json)


@app.command()
def predict(
    job: Annotated[Path, typer.Argument(help="A job file (job and cluster) or a study file.", metavar="JOB.yaml")],
    configurations: Annotated[
        Path | None, typer.Option(help="CSV of what to predict; the whole space by default.", metavar="IN.csv")
    ] = None,
    calibrate: Annotated[
        Path | None, typer.Option(help="Measured table of this job on this cluster.", metavar="MEASURED.csv")
    ] = None,
    calibration: Annotated[Path | None, typer.Option(help="A saved calibration.", metavar="FILE.json")] = None,
    save_calibration: Annotated[
        Path | None, typer.Option(help="Where to save the calibration.", metavar="FILE.json")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="CSV of every prediction.", metavar="OUT.csv")] = None,
    as_json: AsJson = False,
) -> None:
    """Predict step time, energy and memory without a GPU; nothing is run or stored."""
    from api.predict import Files
    from api.predict import predict as run

    files = Files(
        job=job,
        configurations=configurations,
        calibrate=calibrate,
        calibration=calibration,
        save_calibration=save_calibration,
        output=output,
    )
    run(files, render.make_console(), render.make_console(stderr=True), as_json=as_json)


@app.command()
def migrate() -> None:
    """Bring the database to the schema that this version needs."""
    upgrade(_settings().database_url)
    render.make_console(stderr=True).print(f"database at revision {head_revision()}")


@app.command()
def export(
    name: StudyName,
    form: Annotated[ExportFormat, typer.Option("--format", help="csv or json.")] = ExportFormat.csv,
    output: Annotated[Path | None, typer.Option(help="A file; standard output by default.")] = None,
) -> None:
    """Write a study's trials as CSV or JSON."""
    from api.exporting import trials_csv

    repository = open_repository(_settings().database_url)
    trials = repository.trials(repository.study(name).id)
    if form is ExportFormat.json:
        answer = TrialsAnswer(trials=[TrialAnswer.of(trial) for trial in trials], next=None)
        text = answer.model_dump_json(indent=2) + "\n"
    else:
        text = trials_csv(trials)
    _write(text, output)


@app.command()
def pause(name: StudyName, as_json: AsJson = False) -> None:
    """Let running trials end, start no more, free the GPUs."""
    _steer(name, StudyEvent.pause, as_json=as_json)


@app.command()
def resume(name: StudyName, as_json: AsJson = False) -> None:
    """Go on with a paused study."""
    _steer(name, StudyEvent.resume, as_json=as_json)


@app.command()
def stop(name: StudyName, as_json: AsJson = False) -> None:
    """Let running trials end, then end the study."""
    _steer(name, StudyEvent.stop, as_json=as_json)


@app.command()
def cancel(name: StudyName, as_json: AsJson = False) -> None:
    """Kill running trials and end the study."""
    _steer(name, StudyEvent.cancel, as_json=as_json)


@app.command()
def delete(name: StudyName) -> None:
    """Delete a study and its trials; one that is being worked on must be stopped first."""
    open_repository(_settings().database_url).delete_study(name)


def main() -> None:
    """Run the command line; every error of a user is one sentence and an exit code."""
    try:
        app()
    except ParetuneError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("interrupted; run the same command again to go on", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # Whoever read the output has seen enough, as with `| head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _settings(**given: object) -> Settings:
    """The settings, with what was given on the command line on top."""
    return load_settings(**{name: value for name, value in given.items() if value is not None})


def _steer(name: str, event: StudyEvent, *, as_json: bool) -> None:
    repository = open_repository(_settings().database_url)
    answer = study_detail(repository, repository.act(name, event).id)
    _print(answer, render.study_table(answer), as_json=as_json)


def _print(answer: BaseModel, shown: RenderableType, *, as_json: bool) -> None:
    if as_json:
        _print_json(answer)
    else:
        render.make_console().print(shown)


def _print_json(answer: BaseModel) -> None:
    print(answer.model_dump_json(indent=2))


def _write(text: str, output: Path | None) -> None:
    if output is None:
        sys.stdout.write(text)
        return
    with writing(output, "--output") as stream:
        stream.write(text)


def _log_to_stderr() -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("alembic").setLevel(logging.WARNING)


if __name__ == "__main__":
    main()
