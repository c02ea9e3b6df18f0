"""Training, on one process or on several workers at once.

    trainer = tutti.Trainer(model, data=data, optim=optim.AdamW(1e-3), steps=2000, batch=12,
                            context=64, out="runs/shakespeare")
    trainer.fit()

The bits of a run follow from the model, the data, the options and the seed: not from threads, nor
from whether it was ended and resumed, nor from the number of workers. docs/training.md is the
manual.
"""

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO, TypeVar

from tutti import _core
from tutti._error import Error
from tutti._recipe import refuse_while_loading, save_recipe
from tutti._run_folder import RunFolder
from tutti.config import from_dict
from tutti.config import save as save_config
from tutti.data import Data
from tutti.nn import Module, i32, trace
from tutti.nn._program import check_threads, processors
from tutti.optim import AdamW

__all__ = ["Run", "Step", "Trainer"]

_T = TypeVar("_T")

# A record is made after so many steps, or so many seconds when they take long.
_RECORD_STEPS = 10
_RECORD_SECONDS = 5.0
# Lines between two of which less time passes are not printed; a live line moves more often.
_LINE_SECONDS = 1.0
_LIVE_SECONDS = 0.2
# Set by `tutti train` when what is printed ends up on a terminal: how wide that is.
_TERMINAL = "TUTTI_TERMINAL"
_USUAL_COLUMNS = 80


@dataclass
class Run:
    """How long a model is trained, and on how much at a time; configurations may inherit it."""

    steps: int = 1000
    batch: int = 16  # samples a step
    atom: int | None = None  # samples whose gradient is computed at once; all of a lane's if none
    lanes: int = 0  # parts of a step that workers share; decide the bits; if 0 one for each
    mesh: str = ""  # how workers are arranged: dp=2,tp=2; all share the data if it is not said
    rules: str = ""  # what axes of the mesh split, before what they do by their names: vocab=tp
    context: int = 256  # tokens a sample
    seed: int = 0  # of the weights, the order of samples, and what is dropped out
    consecutive: bool = False  # samples one after the other instead of from anywhere
    out: Path | None = None  # the folder of the run: weights, metrics, what it takes to go on
    resume: bool = False  # go on with what is in that folder
    weights: Path | None = None  # begin with these, a safetensors file
    evaluate_every: int = 250  # steps; 0: only at the end
    evaluate_batches: int = 0  # of validation data; 0: all there are
    save_every: int = 1000  # steps; 0: only at the end
    threads: int = 0  # as many as cores if 0
    memory: str = ""  # train in this much: 2GiB; what does not fit is computed again
    check_numerics: bool = False  # look at every number of every step; slow
    json: bool = False  # print events as JSON lines


@dataclass(frozen=True)
class Step:
    """What a step was."""

    step: int
    loss: float
    norm: float  # the gradient's, before it was scaled down
    rate: float
    seconds: float
    waited: float  # seconds, for data


@dataclass
class _Printer:
    """One live line on a terminal, lines elsewhere."""

    json: bool
    silent: bool = False  # another worker tells it
    out: TextIO = field(default_factory=lambda: sys.stdout)
    columns: int = field(init=False)  # of the terminal; 0: it is none
    _printed: float = field(default=-math.inf, init=False)
    _shown: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.columns = 0 if self.json or self.silent else _terminal_columns(self.out)

    def is_due(self) -> bool:
        """Whether the live line may move on."""
        return self.columns > 0 and time.monotonic() - self._printed >= _LIVE_SECONDS

    def event(
        self, kind: str, record: dict[str, Any], words: str, *, passing: bool = False
    ) -> None:
        """``passing``: a line like the one before it, of which not all need to be seen."""
        if self.silent:
            return
        if self.json:
            # At once: who is killed between a line and its end would join it with the next one's.
            line = json.dumps({"event": kind, **record}) + "\n"
            print(line, end="", file=self.out, flush=True)
        elif words and self.columns > 0:
            self._show(words, passing)
        elif words and not (passing and time.monotonic() - self._printed < _LINE_SECONDS):
            self._printed = time.monotonic()
            print(words, file=self.out, flush=True)

    def _show(self, words: str, passing: bool) -> None:
        # The cursor stays where the next one begins; a longer line would not be written over.
        text = words[: self.columns - 1] if passing else words
        print(f"\x1b[K{text}", end="\r" if passing else "\n", file=self.out, flush=True)
        self._printed = time.monotonic()
        self._shown = passing

    def end(self) -> None:
        if self._shown:
            print(file=self.out, flush=True)
            self._shown = False


def _terminal_columns(out: TextIO) -> int:
    if out.isatty():
        return os.get_terminal_size(out.fileno()).columns or _USUAL_COLUMNS
    given = os.environ.get(_TERMINAL, "")
    return int(given) if given.isdecimal() and out is sys.stdout else 0


# Is shown the graph of a trainer's step before it is compiled; for `tutti ir`.
show_step: Callable[[_core.Graph], None] | None = None


class Trainer:
    """A model, what it learns from, and how; fit() does all of it, step() one step."""

    def __init__(
        self,
        model: Module,
        *,
        data: Data,
        optim: AdamW | None = None,
        run: Run | None = None,
        **options: Any,
    ) -> None:
        """``options`` are those of Run, if none is given: steps=…, batch=…, out=….

        A ``run`` may be of a class that has more keys than Run: all of them are saved with it.
        """
        refuse_while_loading("trains")
        self.run = _run_of(run, options)
        if self.run.out is not None and not self.run.resume:
            _make_folder(Path(self.run.out))
        self.data = data
        workers = int(os.environ.get("WORLD_SIZE", "1"))
        sharing = _core.check_mesh(self.run.mesh, self.run.rules, workers)
        self.run = replace(self.run, lanes=self.run.lanes or sharing)
        atom = _atom_of(self.run)
        inputs = i32(batch=atom, time=self.run.context)
        seed = self.run.seed
        self._module = model
        begun = time.monotonic()
        self.model = trace(model, seed=seed, tokens=inputs, targets=inputs)
        evaluated = trace(model, use="evaluate", tokens=inputs, targets=inputs)
        self._traced = time.monotonic() - begun
        self._batches = _validation_batches(data, self.run, atom)
        options = {
            "atoms": self.run.batch // atom,
            "lanes": self.run.lanes,
            "mesh": self.run.mesh,
            "rules": self.run.rules,
            "alike": _alike(self.run, data),
            "vocabulary": data.vocabulary,
            "data_seed": seed,
            "seed": seed,
            "steps": self.run.steps,
            "threads": self.run.threads,
            "memory": self.run.memory,
            "consecutive": self.run.consecutive,
            "check_numerics": self.run.check_numerics,
            **_optimizer_options(optim or AdamW(), self.run.steps),
        }
        if show_step is not None:
            show_step(_core.step_graph(self.model, options))
        self._core = _core.Trainer(self.model, evaluated, data.train, data.validation, options)
        self._begin()

    # What it is, and where.

    @property
    def steps_done(self) -> int:
        return self._core.steps_done

    @property
    def plan(self) -> dict[str, Any]:
        """Memory and work of a step, known before it runs, and how long it took to compile."""
        plan = self._core.plan
        return plan | {"compile_seconds": plan["compile_seconds"] + self._traced}

    @property
    def digest(self) -> int:
        """XXH3 of weights and moments."""
        return self._core.digest()

    # What it does.

    def step(self) -> Step:
        """One step; raises tutti.Error when its loss is not finite, or when the rank's epoch is
        over before it was decided, and then changes nothing. fit() tries the latter again."""
        return Step(*self._core.step())

    def evaluate(self, batches: int | None = None) -> float:
        """The mean loss over validation data, the same each time."""
        if self.data.validation is None:
            raise Error("there are no validation data", "invalid")
        return self._core.evaluate(batches or self._batches)

    def save(self, path: str | os.PathLike[str]) -> None:
        """All it takes to go on, as safetensors; to be called by all workers, as all of these."""
        self._core.save(os.fspath(path), {})

    def load(self, path: str | os.PathLike[str]) -> None:
        """Goes on with what save() wrote."""
        self._core.load(os.fspath(path))

    def save_weights(self, path: str | os.PathLike[str]) -> None:
        """The weights alone."""
        self._core.save_weights(os.fspath(path), {})

    def load_weights(self, path: str | os.PathLike[str]) -> None:
        """Begins with these weights, at step 0."""
        self._core.load_weights(os.fspath(path))

    def fit(self) -> float | None:
        """Trains until all steps are done, tells how it goes, and saves. Returns the last loss of
        validation data, if there are any."""
        done = self.steps_done
        self._in_an_epoch(self._core.meet_others)
        self._goes_on |= self.steps_done != done
        first = self._core.rank == 0
        printer = _Printer(self.run.json, silent=not first)
        try:
            with RunFolder(self.run.out if first else None, self.steps_done) as folder:
                if folder.path is not None:
                    self._describe(folder.path)
                return self._fit(printer, folder)
        finally:
            printer.end()

    def _fit(self, printer: _Printer, folder: RunFolder) -> float | None:
        plan = {key: value for key, value in self.plan.items() if key != "text"}
        printer.event("start", {"step": self.steps_done, **plan}, self._first_line())
        evaluated: float | None = None
        for step in self._steps():
            last = step.step == self.run.steps
            if step.seconds == 0:  # of one before us
                if self._is_due(step):
                    names = ("step", "loss", "norm", "rate")
                    folder.note({name: getattr(step, name) for name in names})
            elif self._is_due(step):
                words, text = self._core.progress(passing=False)
                record = json.loads(text)
                folder.note(record)
                printer.event("step", record, words, passing=not last and step.step > 1)
            elif printer.is_due():
                printer.event("step", {}, self._core.progress(passing=True)[0], passing=True)
            if self._batches and _is_time(step.step, self.run.evaluate_every, last):
                evaluated = self._in_an_epoch(self._evaluate_run)
                record = {"step": step.step, "validation_loss": evaluated}
                folder.note(record)
                words = f"step {step.step}  validation loss {evaluated:.4f}"
                printer.event("evaluate", record, words)
            if self.run.out and _is_time(step.step, self.run.save_every, last):
                folder.flush()  # a run that goes on from here has all records up to here
                self._in_an_epoch(self._save_run)
                printer.event("save", {"step": step.step, "folder": str(self.run.out)}, "")
        words = f"done after {self.steps_done} steps"
        words += f"; the run is in {self.run.out}" if self.run.out else ""
        digest = f"{self._in_an_epoch(self._digest_run):016x}"
        printer.event("end", {"step": self.steps_done, "digest": digest}, words)
        self._in_an_epoch(self._leave)
        return evaluated

    def _steps(self) -> Iterator[Step]:
        self._recorded_at = time.monotonic()
        # Who was before us may not have lived to do what comes after its last step.
        if self._goes_on and self._core.last_step is not None:
            yield Step(*self._core.last_step)
        self._goes_on = False
        while self.steps_done < self.run.steps:
            yield self._in_an_epoch(self.step)

    def _in_an_epoch(self, call: Callable[[], _T]) -> _T:
        """Does it again in the next epoch when the present one ends meanwhile."""
        while True:
            try:
                return call()
            except Error as error:
                if error.code != "unavailable" or not self._core.was_aborted:
                    raise

    # What all workers do together after a step: who was replaced meanwhile goes on with the rest.

    def _evaluate_run(self) -> float:
        self._core.meet_others()
        step, loss = self._core.evaluated
        if step != self.steps_done:
            loss = self.evaluate()
            self._core.note_evaluation(loss)
        return loss

    def _digest_run(self) -> int:
        self._core.meet_others()
        return self.digest

    def _leave(self) -> None:
        """Nobody does before all are done: who is replaced could not meet those who left."""
        self._core.meet_others()
        self._core.note_saved()

    def _is_due(self, step: Step) -> bool:
        now = time.monotonic()
        due = (
            step.step in (1, self.run.steps)
            or step.step % _RECORD_STEPS == 0
            or now - self._recorded_at >= _RECORD_SECONDS
        )
        if due:
            self._recorded_at = now
        return due

    def _first_line(self) -> str:
        plan = self.plan
        threads = "1 thread" if plan["threads"] == 1 else f"{plan['threads']} threads"
        if plan["threads"] > processors():
            threads += f" (slow: they share {processors()} of the processors)"
        words = f"{_count(plan['parameters'])} parameters, {threads}, {plan['text']}"
        return words if self.steps_done == 0 else f"{words}; goes on from step {self.steps_done}"

    # The folder of the run.

    def _begin(self) -> None:
        """Weights: left in the vault, resumed, given, or new."""
        state = self._file("state.safetensors")
        self._goes_on = self._core.has_state
        if self._goes_on:
            return
        if self._core.was_torn and state is not None and state.exists():
            self.load(state)
        elif self.run.resume:
            if state is None:
                raise Error("to resume a run, say where it is: out=…", "invalid")
            if not state.exists():
                raise Error(f"{state} is not there: nothing was saved to go on with", "not_found")
            self.load(state)
        elif self.run.weights is not None:
            self.load_weights(self.run.weights)
        else:
            if state is not None and state.exists():
                raise Error(
                    f"{self.run.out} has a run already: go on with it (resume), or say another"
                    " folder",
                    "exists",
                )
            self._core.initialise_weights()

    def _file(self, name: str) -> Path | None:
        return None if self.run.out is None else Path(self.run.out) / name

    def _describe(self, folder: Path) -> None:
        """What the run is, and what it takes to use it."""
        try:
            save_config(self.run, folder / "config.toml")
            save_recipe(self._module, folder, self.run.context)
            if self.data.tokenizer is not None:
                self.data.tokenizer.save(folder / "tokenizer.json")
        except OSError as error:
            raise _not_written(folder, error) from None

    def _save_run(self) -> None:
        self._core.meet_others()
        if self._core.saved == self.steps_done:
            return
        state, weights = self._file("state.safetensors"), self._file("weights.safetensors")
        assert state is not None and weights is not None
        self.save(state)
        self.save_weights(weights)
        self._core.note_saved()


def _atom_of(run: Run) -> int:
    if run.lanes < 1 or run.batch % run.lanes:
        raise Error(
            f"a batch of {run.batch} samples cannot be dealt to {run.lanes} lanes: use a batch that"
            " is a multiple of them",
            "invalid",
        )
    atom = run.batch // run.lanes if run.atom is None else run.atom
    if atom < 1 or run.batch % atom:
        raise Error(
            f"a batch of {run.batch} samples cannot be parted into atoms of {atom}", "invalid"
        )
    if run.batch // run.lanes % atom:
        raise Error(
            f"{run.lanes} lanes of {run.batch // run.lanes} samples each cannot be parted into"
            f" atoms of {atom}",
            "invalid",
        )
    return atom


# Of the keys of a run, those that workers may have different: they change no bits.
_OWN_KEYS = ("out", "resume", "weights", "threads", "memory", "json")


def _alike(run: Run, data: Data) -> str:
    """What all workers must have alike besides the model: the configuration, and the data as far
    as can be seen at once."""
    keys = {name: each for name, each in sorted(vars(run).items()) if name not in _OWN_KEYS}
    ends = [
        [len(tokens), *(tokens[i] for i in range(min(len(tokens), 64)))]
        for tokens in (data.train, data.validation)
        if tokens is not None
    ]
    return repr((keys, ends, data.vocabulary))


def _make_folder(folder: Path) -> None:
    """That of a run, before anything is computed that could not be kept."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(0, "it cannot be written to")
    except OSError as error:
        raise _not_written(folder, error) from None


def _not_written(folder: Path, error: OSError) -> Error:
    code = "denied" if isinstance(error, PermissionError) else "io"
    where = error.filename or folder
    return Error(
        f"the run cannot be kept in {folder}: {where}: {error.strerror}; say another folder: out=…",
        code,
    )


def _run_of(run: Run | None, options: dict[str, Any]) -> Run:
    if run is not None and options:
        raise Error(f"give a Run, or its options: not both ({', '.join(options)})", "invalid")
    made = run or from_dict(Run, {key: _plain(each) for key, each in options.items()})
    if made.steps < 1:
        raise Error(f"a run of {made.steps} steps; use 1 or more", "invalid")
    if made.batch < 1:
        raise Error(f"a batch of {made.batch} samples; use 1 or more", "invalid")
    if made.context < 1:
        raise Error(f"a context of {made.context} tokens; use 1 or more", "invalid")
    for name in ("evaluate_every", "evaluate_batches", "save_every"):
        if getattr(made, name) < 0:
            raise Error(f"{name} is {getattr(made, name)}; use 0 or more", "invalid")
    if not 0 <= made.seed < 2**63:
        raise Error(f"seed is {made.seed}; use 0 to below 2^63", "invalid")
    check_threads(made.threads)
    return made


def _plain(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _optimizer_options(optimizer: AdamW, steps: int) -> dict[str, Any]:
    schedule = optimizer.schedule
    return {
        "beta1": optimizer.betas[0],
        "beta2": optimizer.betas[1],
        "epsilon": optimizer.epsilon,
        "decay": optimizer.decay,
        "max_norm": optimizer.max_norm,
        "rate": schedule.rate,
        "least": schedule.least,
        "warm_up": schedule.warm_up,
        "end": steps if schedule.end is None else schedule.end,
        "decline": schedule.decline,
    }


def _validation_batches(data: Data, run: Run, atom: int) -> int:
    """Batches of an evaluation; 0 when there is nothing to evaluate on."""
    if data.validation is None:
        return 0
    windows = (len(data.validation) - 1) // run.context
    if windows < 1:
        raise Error(
            f"{data.validation.name}: {len(data.validation)} tokens for validation are fewer than"
            f" one sample of {run.context} takes: hold out more, or shorten the context",
            "invalid",
        )
    everything = -(-windows // atom)
    return min(run.evaluate_batches or everything, everything)


def _is_time(step: int, every: int, last: bool) -> bool:
    return last or (every > 0 and step % every == 0)


def _count(number: int) -> str:
    for unit, size in (("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return str(number)
