"""Full-length runs of the papers' experiments: what is missing from cached_runs, the most valuable first.

Partial runs live in a store like a person's own: a budget that runs out, Ctrl-C or a crash loses no more than an epoch.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from dpviz.papers import PAPERS, RECIPES, local_recipes_of, recipes_of
from dpviz.paths import cached_runs_folder
from dpviz.privacy.registry import InputError
from dpviz.runs.execution.job import RunOptions
from dpviz.runs.execution.runner import AUTO, Runner
from dpviz.runs.store.cached import CACHED, CachedRun, cached_runs, read_cached, read_checkpoint, write_cached
from dpviz.runs.store.lock import Lock
from dpviz.runs.store.records import RESUMABLE, Run
from dpviz.runs.store.run_files import reason
from dpviz.runs.store.store import Store
from dpviz.training.spec import STREAMS, RunSpec
from dpviz.training.tables import METHODS

SEEDS = (0, 1, 2)
LOCKS = ".reproduce"  # in the store's folder: one lock per run

# What is worth most comes first: one seed of whatever decides a claim, then more seeds, then what takes hours.
# A line is (patterns of recipes, seeds); what no line names follows in the papers' order.
ORDER: tuple[tuple[tuple[str, ...], tuple[int, ...]], ...] = (
    (("curricula/linear-decreasing", "curricula/constant-1.54", "curricula/linear-increasing"), (0,)),
    (("curricula/constant-0", "curricula/matched-pld-linear"), (0,)),
    (("losing-less/mnist-ce-t-cnn", "screening/mnist-tanh"), (0,)),
    (("curricula/constant-1", "curricula/sample-constant-1"), (0,)),
    (("losing-less/mnist-o-t-cnn",), (0,)),
    (("curricula/constant-5", "curricula/exponential-*", "curricula/quadratic-*"), (0,)),
    (("screening/mnist",), (0,)),
    (("curricula/constant-*", "curricula/matched-*", "curricula/piecewise-*", "curricula/logarithmic-*"), (0,)),
    (("curricula/masked-*", "curricula/sample-*", "curricula/dynamic-*"), (0,)),
    (("losing-less/mnist-sse-t-cnn", "losing-less/mnist-sse-focal-t-cnn"), (0,)),
    (("screening/mnist-dpsgd", "screening/mnist-auto-s"), (0,)),
    (("losing-less/mnist-ce-t-pfe-cnn", "losing-less/mnist-o-t-pfe-cnn"), (0,)),
    (("losing-less/fashion-ce-t-pfe-cnn", "losing-less/fashion-o-t-pfe-cnn"), (0,)),
    (("curricula/*",), (1, 2)),
    (("losing-less/fashion-ce-t-cnn", "losing-less/fashion-o-t-cnn", "screening/fashion", "screening/fashion-*"), (0,)),
    (("losing-less/mnist-ce-t-cnn", "losing-less/mnist-o-t-cnn", "screening/mnist", "screening/mnist-tanh"), (1, 2)),
    (("losing-less/fashion-ce-t-cnn", "losing-less/fashion-o-t-cnn"), (1, 2)),
    (("screening/fashion", "screening/fashion-tanh"), (1, 2)),
    (("losing-less/cifar10-ce-t-cnn", "losing-less/cifar10-o-t-cnn"), (0,)),
    (("optimizers/dp-sgd-b256", "optimizers/dp-adam-b256-lr0.001", "optimizers/dp-*-b256"), (0,)),
    (("losing-less/mnist-sse*-t-cnn", "losing-less/fashion-sse*-t-cnn"), (1, 2)),
    (("screening/mnist-*", "screening/fashion-*"), (1, 2)),
    (("losing-less/mnist-*", "losing-less/fashion-*"), SEEDS),
    (("screening/cifar10*",), (0,)),
)


@dataclass(frozen=True)
class PaperRun:
    """One run of a paper's experiment: its recipe with a seed.

    Where a paper looks inside its runs, seed 0 does too; screening counts the updates that it accepted there.
    """

    recipe: str
    seed: int

    @property
    def spec(self) -> RunSpec:
        recipe = RECIPES[self.recipe]
        spec = recipe.spec
        inside = METHODS[spec.method].screened or (PAPERS[recipe.paper].diagnostics and self.seed == 0)
        return dataclasses.replace(spec, seed=self.seed, diagnostics=inside)

    def __str__(self) -> str:
        return f"{self.recipe} seed {self.seed}"


@dataclass(frozen=True)
class Outcome:
    """What became of it: cached, shortened (and cached), shared (another experiment's), stopped or failed."""

    wanted: PaperRun
    state: str
    run: Run | None = None
    error: str = ""


def paper_runs(which: str | None = None, seeds: Iterable[int] | None = None) -> tuple[PaperRun, ...]:
    """Every run of a paper or an experiment, or of all of them, the most valuable first."""
    wanted = _recipes(which)
    allowed = tuple(SEEDS if seeds is None else seeds)
    every = [(patterns, tier) for patterns, tier in ORDER] + [(("*",), SEEDS), (("*",), allowed)]
    ordered = (
        PaperRun(name, seed)
        for patterns, tier in every
        for seed in tier
        for pattern in patterns
        for name in wanted
        if seed in allowed and fnmatchcase(name, pattern)
    )
    return tuple(dict.fromkeys(ordered))


def _recipes(which: str | None) -> tuple[str, ...]:
    if which is None:
        return tuple(RECIPES)
    if "/" in which:
        return (RECIPES[which].name,)
    names = tuple(recipe.name for recipe in recipes_of(PAPERS[which].name))
    if not names:
        why = "its experiments are trials under local privacy" if local_recipes_of(which) else "it is only cited"
        raise InputError(f"{which} has no runs: {why}")
    return names


class Reproduction:
    """The cached runs and a store of unfinished ones, and how to get from the second to the first."""

    def __init__(self, store: Store, folder: Path | None = None) -> None:
        self.store, self.folder = store, folder
        listing = cached_runs(folder)
        self.warnings = listing.warnings
        self.cached = {(f"{run.paper}/{run.experiment}", run.seed): run for run in listing.runs}

    def state(self, paper_run: PaperRun) -> str:
        """cached, begun (in the store), shortened (cached, but not to its end) or missing.

        A cached run of other settings than the recipe's is missing.
        """
        if self._is_cached(paper_run):
            return "cached"
        if self._begun(paper_run.spec):
            return "begun"
        return "shortened" if self._is_cached(paper_run, until=1) else "missing"

    def missing(self, wanted: Iterable[PaperRun], until: int | None = None) -> tuple[PaperRun, ...]:
        """What is not cached up to this epoch, or to the end."""
        return tuple(paper_run for paper_run in wanted if not self._is_cached(paper_run, until))

    def run(
        self,
        wanted: Iterable[PaperRun],
        runner: Runner,
        *,
        options: RunOptions = AUTO,
        seconds: float | None = None,
        on_start: Callable[[PaperRun], None] = lambda paper_run: None,
    ) -> Iterator[Outcome]:
        """Make what is missing, one run after the other, until it is done or the time is up.

        Processes that share a store share the work: what another one is at, or has made by now, is passed over. Where
        runs are stopped early (`options.until`), what they came to is cached, and replaced once somebody makes the
        whole run.
        """
        ends = time.monotonic() + seconds if seconds is not None else None
        for paper_run in self.missing(wanted, options.until):
            if ends is not None and time.monotonic() >= ends:
                return
            with self._claimed(paper_run, options.until) as ours:
                if not ours:
                    continue
                on_start(paper_run)
                if twin := self._twin(paper_run.spec):
                    yield Outcome(paper_run, "shared", self._write(_renamed(twin, paper_run), paper_run))
                    continue
                run = self._train(paper_run, runner, options, ends)
                if reached(run, options.until):
                    state = "cached" if run.status == "done" else "shortened"
                    yield Outcome(paper_run, state, self._write(run, paper_run))
                    continue
                yield Outcome(paper_run, run.status, run, run.error)
                if run.status == "stopped":
                    return

    @contextmanager
    def _claimed(self, paper_run: PaperRun, until: int | None = None) -> Iterator[bool]:
        """Whether the run is this process' to make; nobody else takes it meanwhile."""
        locks = self.store.folder / LOCKS
        try:
            locks.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"no run can be kept in the runs folder: {reason(error)}") from None
        try:
            lock = Lock(locks / f"{paper_run.spec.key}.lock")
        except InputError:
            yield False
            return
        try:
            self._look(paper_run)
            yield not self._is_cached(paper_run, until)
        finally:
            lock.release()

    def _look(self, paper_run: PaperRun) -> None:
        """Take over what another process has cached since this one started."""
        paper, _, experiment = paper_run.recipe.partition("/")
        with suppress(InputError):
            cached = read_cached((self.folder or cached_runs_folder()) / paper / experiment / str(paper_run.seed))
            self.cached[paper_run.recipe, paper_run.seed] = cached

    def _train(self, paper_run: PaperRun, runner: Runner, options: RunOptions, ends: float | None) -> Run:
        """The run in the store, trained to its end or until the time is up."""
        run_id = self._begun(paper_run.spec) or self._adopted(paper_run, options.device)
        with _deadline(ends, runner.stop_all):
            if run_id is None:
                run_id = runner.start(paper_run.spec, options=options)
            elif not reached(self.store.get(run_id), options.until):
                runner.resume(run_id, options=options)
            runner.wait(run_id)
        return self.store.get(run_id)

    def _write(self, run: Run, paper_run: PaperRun) -> Run:
        paper, _, experiment = paper_run.recipe.partition("/")
        checkpoint = None if run.status == "done" else self.store.read_checkpoint(run.id)
        written = write_cached(run, paper, experiment, folder=self.folder, replace=True, checkpoint=checkpoint)
        self.cached[paper_run.recipe, paper_run.seed] = read_cached(written)
        return run

    def _is_cached(self, paper_run: PaperRun, until: int | None = None) -> bool:
        cached = self.cached.get((paper_run.recipe, paper_run.seed))
        return cached is not None and same(cached.run.own_spec, paper_run.spec) and reached(cached.run, until)

    def _twin(self, spec: RunSpec) -> CachedRun | None:
        """A finished cached run of equal settings, which looked inside if this one has to."""
        done = (run for run in self.cached.values() if run.run.status == "done" and same(run.run.own_spec, spec))
        return next((run for run in done if run.run.own_spec.diagnostics >= spec.diagnostics), None)

    def _begun(self, spec: RunSpec) -> str | None:
        """The run in the store with these settings, finished or not; the one that came furthest."""
        alike = [run for run in self.store.list().runs if run.key == spec.key and run.status in (*RESUMABLE, "done")]
        return max(alike, key=lambda run: (run.status == "done", run.epochs_done)).id if alike else None

    def _adopted(self, paper_run: PaperRun, device: str) -> str | None:
        """The shortened cached run, copied into the store to go on from its checkpoint, if this device draws alike."""
        if not self._is_cached(paper_run, until=1):
            return None
        cached = self.cached[paper_run.recipe, paper_run.seed]
        checkpoint = read_checkpoint(cached, self.folder)
        if checkpoint is None or not _draws_alike(cached.run, device):
            return None
        return self._begun(cached.run.own_spec) or self.store.adopt(cached.run, checkpoint)


def _renamed(twin: CachedRun, paper_run: PaperRun) -> Run:
    """Another experiment's run of equal settings, under this experiment's name; its provenance says so."""
    assert twin.run.provenance is not None
    place = twin.run.provenance.place or f"computed for {twin.paper}/{twin.experiment}"
    provenance = dataclasses.replace(twin.run.provenance, place=place)
    return dataclasses.replace(
        twin.run, spec=dataclasses.replace(twin.run.own_spec, recipe=paper_run.recipe), provenance=provenance
    )


def _draws_alike(run: Run, device: str) -> bool:
    """Whether this machine's device draws the random numbers that a run began with."""
    from dpviz.training.devices import device_of
    from dpviz.training.random_streams import drawn_on

    began_on = run.provenance.generators if run.provenance else ""
    return drawn_on(run.own_spec, device_of(device)).model == (began_on or "cpu")


def reached(run: Run, until: int | None) -> bool:
    """Whether a run got to this epoch, or to its end, and was written down there."""
    return run.status == "done" or (until is not None and len(run.epochs) >= until and run.status in CACHED)


def same(one: RunSpec, other: RunSpec) -> bool:
    """Whether two runs try the same: looking inside does not change a run, names are labels, and streams are chance."""
    labels = {"recipe": "", "diagnostics": False, "streams": STREAMS}
    return bool(one.to_json() | labels == other.to_json() | labels)


@contextmanager
def _deadline(ends: float | None, stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` once the time is up."""
    if ends is None:
        yield
        return
    timer = threading.Timer(max(0.0, ends - time.monotonic()), stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
