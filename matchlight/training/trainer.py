"""Run the epochs of a recipe: step, log, validate, keep the best, and be able to stop dead and go on at the same step.

Nothing here depends on what ran before: the order of rows and every random draw follow from (seed, epoch, phase, step),
so a run that was killed and resumed ends with the same weights, bit for bit on a CPU with as many threads.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from matchlight import devices, files
from matchlight.console import say
from matchlight.core import BadInput, Batch, Matcher, Named, Objective, Seed
from matchlight.inputs import compiled
from matchlight.inputs.batches import LABELLED, Feed, collate, fewest, for_gpu, plan, seeded, tensors_of, with_tensors
from matchlight.inputs.prepare import Inputs
from matchlight.measuring.protocols import evaluate_scores
from matchlight.parts.objectives import evidence
from matchlight.scoring.all_pairs import held_scores
from matchlight.scoring.encode import encode_both, predicted
from matchlight.training import checkpoints
from matchlight.training.callbacks import Callback, EpochLine
from matchlight.training.contract import Best, Phase, Recipe
from matchlight.training.graphed import DRAWS, GraphedSteps, Graphs, signature
from matchlight.training.network import OBJECTIVE, RECORDED, Network, objectives_of, score_batch, whole_batch

Report = Mapping[str, object]  # what a protocol measured
MOST_VALIDATION = 1000  # pictures: enough to choose by, cheap enough to do every epoch
QUICK_WRITE = 0.5  # seconds: a state that takes less to write is written after every epoch
HELD_OUT = 0.04  # share of the training pictures that select="noisy" keeps aside


class Trainer:
    """Trains one recipe on one table into one folder. Strategies and callbacks see it as a `TrainingRun`."""

    def __init__(
        self,
        folder: Path,
        recipe: Recipe,
        inputs: Inputs,
        *,
        seed: int = 0,
        device: torch.device | str = "cpu",
        precision: str = "fp32",
        save_minutes: float = 2.0,
        callbacks: Sequence[Callback] = (),
    ):
        self.folder, self.recipe, self.inputs = folder, recipe, inputs
        self.table, self.pairs = inputs.table, inputs.table.pairs
        self.seed, self.device, self.precision = seed, torch.device(device), precision
        self.save_minutes = save_minutes
        alone = threading.Lock()  # of who makes batches and who records graphs
        self.graphs = Graphs(self.device, alone=alone) if self._can_record() else None
        self.feed = Feed(self.device, alone=alone)
        self.passing = False  # the run is thrown away once it is measured: its state is saved every few minutes alone
        self.repeat = recipe.siblings == "negatives" or self.table.pixels  # every batch of pixels has one size
        self.rows, self.held = self._learnt_and_held_rows()
        names = recipe.strategy.networks
        self.compiled = compiled.is_wanted(self.device, recipe.epochs * len(names) * len(self.rows) // recipe.batch)
        self.networks = {name: self._built(name, seed + 1000 * k) for k, name in enumerate(names)}
        self.epoch = self.phase = self.step = self.total_steps = 0
        self.phases = 1
        self.resumed_from: int | None = None
        self.losses: list[torch.Tensor] = []
        self.seen: list[tuple[torch.Tensor, torch.Tensor]] = []  # (rows, evidence) of the epoch under way
        self.history: list[np.ndarray] = []  # evidence of the epochs done
        self.log: list[EpochLine] = []
        self.best = Best()
        self.waited = 0
        self.saved_at, self.save_cost = time.monotonic(), 0.0  # small models are saved often, large ones seldom
        self.writer = checkpoints.Writer()
        self.callbacks = callbacks

    @property
    def chief(self) -> bool:
        """The process that writes files and talks."""
        return devices.rank() == 0

    def _learnt_and_held_rows(self) -> tuple[np.ndarray, np.ndarray]:
        """Training rows, and rows to choose by: the val split, or training pictures held out as noisy as they are."""
        rows = self.table.rows("train")
        held = self.table.rows("val") if "val" in self.pairs.split_names else rows[:0]
        if self.recipe.select == "noisy" and len(rows):
            pictures = np.unique(self.pairs.picture[rows])
            aside = seeded(self.seed, 77).choice(pictures, max(1, round(HELD_OUT * len(pictures))), replace=False)
            out = np.isin(self.pairs.picture[rows], aside)
            rows, held = rows[~out], rows[out]
        if len(rows) < fewest():
            usable = f"the train split has {len(rows)} usable pairs{' after holding some out' if len(held) else ''}"
            raise BadInput(f"{self.pairs.root}: {usable}; training needs at least {fewest()}")
        first = np.unique(self.pairs.picture[held])[:MOST_VALIDATION]
        return rows, held[np.isin(self.pairs.picture[held], first)]

    def begin(self) -> None:
        """Before the first step of a run that starts from no other run's weights."""
        for k, network in enumerate(self.networks.values()):
            network.begin(self.table, self.rows, self.seed + 1000 * k)
        if self.recipe.begin is not None:
            self.validate_start()

    def validate_start(self) -> None:
        """What is there before the first step is a model already: it is kept unless an epoch makes a better one."""
        self.epoch = -1
        report = self._validate()
        self.writer.flush()
        self.epoch = 0
        if self.chief and report is not None:
            name, form = ("rsum", ".1f") if self.recipe.protocol == "recall" else ("map", ".4g")
            say(f"before the first step: val {name} {self._value(report):{form}}")

    def fresh(self, name: str, *, seed: int) -> Network:
        """A new network that has taken no step."""
        network = self._built(name, seed)
        network.begin(self.table, self.rows, seed)
        return network

    def _can_record(self) -> bool:
        """Small models on a GPU: behind pixels stands a backbone that keeps it busy, and processes exchange."""
        alone = self.device.type == "cuda" and devices.world() == 1 and self.recipe.optimiser in RECORDED
        return alone and not self.table.pixels and os.environ.get("MATCHLIGHT_GRAPHS", "1") != "0"

    def _built(self, name: str, seed: int) -> Network:
        network = Network(self.recipe, seed=seed, device=self.device, name=name, compiled=self.compiled)
        if self.graphs is not None:
            network.keep_steps(self.graphs)
        return network

    # ---- the loop ----

    def fit(self) -> None:
        """All epochs that are left, then what a run leaves behind."""
        try:
            for callback in self.callbacks:
                callback.begin(self)
            while self.epoch < self.recipe.epochs and not self._patience_spent():
                self._epoch()
            self.recipe.strategy.finish(self)
        finally:
            for callback in self.callbacks:
                callback.end(self)
            self.writer.flush()  # also after Ctrl-C: what was saved is on the disk
        self._write_run_files()

    def _patience_spent(self) -> bool:
        return bool(self.recipe.patience) and self.waited >= self.recipe.patience

    def _epoch(self) -> None:
        began = time.monotonic()
        phases = self.recipe.strategy.phases(self, self.epoch)
        self.phases = len(phases)
        while self.phase < len(phases):
            self._pass(phases[self.phase])
            self.phase, self.step = self.phase + 1, 0
        self._close_epoch(phases[-1].name, time.monotonic() - began)

    def _pass(self, phase: Phase) -> None:
        rng = seeded(self.seed, self.epoch, self.phase)
        batches = phase.order(rng) if phase.order else self.table.plan(phase.rows, self.recipe.batch, rng)
        network = self.networks[phase.network]
        network.matcher.train()

        def make(step: int) -> Batch:
            chance = seeded(self.seed, self.epoch, self.phase, step)
            rows = batches[step]
            pictures = None if phase.pictures is None else phase.pictures[rows]
            more = phase.companions(rows, chance) if phase.companions else None
            repeat = self.repeat and not phase.together
            whole = collate(self.table, rows, more=more, repeat=repeat, pictures=pictures)
            return for_gpu(whole, network.matcher, self.device)

        for batch in self.feed.batches(make, range(self.step, len(batches))):
            self._step(network, phase, batch, len(batches))
            self.step += 1
            self.total_steps += 1
            done = self.epoch + (self.phase + self.step / len(batches)) / self.phases
            for callback in self.callbacks:
                callback.step(self, done)
            if self._unsaved_for(math.inf if self.passing else max(1.0, 100 * self.save_cost)):
                self.save()

    def _unsaved_for(self, seconds: float) -> bool:
        return time.monotonic() - self.saved_at > min(60 * self.save_minutes, seconds)

    def _save_is_due(self) -> bool:
        """At the end of an epoch: always, but for a state so large that writing it takes longer than the training."""
        if self.passing:
            return self._unsaved_for(math.inf)
        quick = self.writer.cost < QUICK_WRITE or self.epoch >= self.recipe.epochs
        return quick or self._unsaved_for(20 * self.writer.cost)

    def _step_seed(self, rank: int) -> int:
        """The seed of everything random inside this step, for one process."""
        numbers = (self.seed & 0xFFFFFFFF, self.epoch, self.phase, self.step, rank)
        return int(np.random.SeedSequence(numbers).generate_state(1)[0])

    def _step(self, network: Network, phase: Phase, batch: Batch, steps: int) -> None:
        devices.seed(self._step_seed(devices.rank()), shared=self._step_seed(0))
        network.set_rates(self.recipe.schedule(self.epoch, self.step, steps))
        batch = self.recipe.strategy.before_step(self, phase, batch)  # sees items before anything is dropped or cropped
        batch = self._hardened(phase, batch, steps)
        network.matcher.train()
        objective = phase.objective or network.objective
        objective.train()
        scale = phase.weight(self.step, steps) if phase.weight else 1.0
        draw = self._step_seed(0)  # by item, not by process: two processes change a picture as one would
        if network.graphed is None:
            found = self._update(network, objective, batch, draw=draw, scale=scale)
        else:
            found = self._recorded(network.graphed, network, objective, batch, draw=draw, scale=scale)
        network.follow()
        self.losses.append(found["loss"])
        if "evidence" in found:
            self.seen.append((batch.row, found["evidence"]))

    def _hardened(self, phase: Phase, batch: Batch, steps: int) -> Batch:
        """The batch with its hardness where its phase has one: as a tensor, since a graph reads no numbers anew."""
        if phase.hardness is None:
            return batch
        share = phase.hardness(self.step, steps)
        return batch.with_extra(hardness=torch.full_like(batch.row, share, dtype=torch.float32))

    def _update(
        self, network: Network, objective: Objective, batch: Batch, *, draw: Seed, scale: float | torch.Tensor
    ) -> Named:
        """Forward, backward and the optimiser's step: what a graph holds. The loss, and each pair's evidence."""
        batch = self._augmented(batch, draw)
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.precision == "bf16"):
            embeddings, batch = whole_batch(network.matcher, batch)
            scores = score_batch(network.matcher, embeddings, batch, matrix=objective.needs_matrix)
        loss = objective.total(objective(scores, embeddings, batch))
        network.update(loss * scale)
        if scores.matrix is None:
            return {"loss": loss.detach()}
        fit = evidence(scores.matrix / network.matcher.per_cosine(), batch)
        if (labelled := batch.extra.get(LABELLED)) is not None:  # other pairs say nothing of their rows
            fit = torch.where(labelled, fit, torch.nan)
        return {"loss": loss.detach(), "evidence": fit}

    def _recorded(
        self,
        steps: GraphedSteps,
        network: Network,
        objective: Objective,
        batch: Batch,
        *,
        draw: int,
        scale: float,
    ) -> Named:
        """The same by a graph, where one of this shape was recorded."""
        seeds = [devices.shared_draw() for _ in range(DRAWS)]
        inputs = {**tensors_of(batch), "seeds": torch.tensor([draw, *seeds]), "scale": torch.tensor(scale)}

        def work(read: Named) -> Named:
            own, *shared = read["seeds"].unbind()
            with devices.draws_given(shared), network.recording():
                return self._update(network, objective, with_tensors(batch, read), draw=own, scale=read["scale"])

        def usual() -> Named:
            with devices.draws_given(seeds):
                return self._update(network, objective, batch, draw=draw, scale=scale)

        real = tuple(items.real for items in batch.sides.values())
        key = (network.key, signature(objective), batch.core, real)
        return steps(key, inputs, work, usual, objective)

    def _augmented(self, batch: Batch, draw: Seed) -> Batch:
        if self.recipe.augment is None:
            return batch
        sides = {side: self.recipe.augment(side, items, draw) for side, items in batch.sides.items()}
        return Batch(sides, batch.links, batch.row, batch.extra, batch.core)

    # ---- the end of an epoch ----

    def _close_epoch(self, phase: str, seconds: float) -> None:
        loss = float(torch.stack(self.losses).float().mean()) if self.losses else float("nan")
        if not np.isfinite(loss):
            raise self._diverged(f"a loss of {loss}")
        self._remember_evidence()
        report = self._validate() if self._validates() else None
        line = EpochLine(epoch=self.epoch, phase=phase, loss=loss, seconds=round(seconds, 3), val=report)
        if self.resumed_from is not None:
            line["resumed_from_step"] = self.resumed_from
            self.resumed_from = None
        self.log.append(line)
        self.losses, self.seen = [], []
        self.epoch, self.phase, self.step = self.epoch + 1, 0, 0
        if self._save_is_due():
            self.save()
        if self.chief:
            self._write_log()
        for callback in self.callbacks:
            callback.epoch(self, line, self._value(report))

    def _validates(self) -> bool:
        last = self.epoch + 1 == self.recipe.epochs
        return last or (self.epoch + 1) % self.recipe.validate_every == 0

    def _remember_evidence(self) -> None:
        """This epoch's evidence by row of the whole table, the mean of what its networks saw; NaN where none did."""
        total, times = np.zeros(len(self.pairs)), np.zeros(len(self.pairs))
        if (evidence_seen := self._evidence_so_far()) is not None:
            rows, values = (part.cpu().numpy() for part in evidence_seen)
            known = ~np.isnan(values)
            np.add.at(total, rows[known], values[known])
            np.add.at(times, rows[known], 1)
        mean = np.divide(total, times, out=np.full(len(total), np.nan), where=times > 0)
        self.history.append(np.clip(mean, None, np.finfo(np.float16).max).astype(np.float16))

    def result(self) -> Matcher:
        """The model as the strategy would hand it over now."""
        return self.recipe.strategy.result(self)

    def _validate(self) -> Report | None:
        """Judge the model on held rows; keep it if it is the best so far (or if the last one is wanted)."""
        matcher = self.result()
        report = devices.broadcast(self._measure(matcher) if self.chief and len(self.held) else None)
        if report is not None and self.recipe.validate_loss:
            report = {**report, "loss": self._held_loss(matcher)}
        value = self._value(report)
        if self.recipe.select == "last" or report is None or value > self.best.value:
            self.best = Best(value, self.epoch, report)
            self.waited = 0
            if self.chief:
                self._keep("model.safetensors", matcher.state_dict())
                if learnt := objectives_of(self.networks):
                    self._keep(OBJECTIVE, learnt)
        else:
            self.waited += 1
        return report

    def _keep(self, name: str, weights: dict[str, torch.Tensor]) -> None:
        checkpoints.save_weights(self.folder / name, weights, by=self.writer, flush=not self.passing)

    def _measure(self, matcher: Matcher) -> Report:
        pictures = np.unique(self.pairs.picture[self.held])
        images, texts = encode_both(matcher.eval(), self.table, pictures, self.held)
        scores = held_scores(matcher, images, texts)
        if not torch.stack(torch.aminmax(scores)).isfinite().all():
            raise self._diverged("scores that are no numbers")
        named = predicted(matcher, images, texts) if self.recipe.protocol == "labels" else None
        held = self.pairs.select(pictures, self.held)
        by_labels = self.recipe.protocol == "labels"  # a recall's interval follows from the recall, a mean's does not
        return dict(
            evaluate_scores(scores, held, protocol=self.recipe.protocol, ci=by_labels, predictions=named or None)
        )

    @torch.no_grad()
    def _held_loss(self, matcher: Matcher) -> float:
        """The mean loss of held rows, in the same batches after every epoch: a contrast depends on what is beside."""
        objective, matcher = self.networks["A"].objective.eval(), matcher.eval()
        total = 0.0
        for rows in plan(self.held, self.recipe.batch, seeded(self.seed, 78)):
            embeddings, batch = whole_batch(matcher, collate(self.table, rows, repeat=self.repeat).to(self.device))
            scores = score_batch(matcher, embeddings, batch, matrix=objective.needs_matrix)
            total += len(rows) * float(objective.total(objective(scores, embeddings, batch)))
        return total / len(self.held)

    def _diverged(self, how: str) -> BadInput:
        kept = f"{self.folder} keeps the last good state"
        return BadInput(f"epoch {self.epoch + 1} ended in {how}; a smaller rate= usually helps. {kept}")

    def _value(self, report: Report | None) -> float:
        if report is None:
            return float("-inf")
        value = report["rsum"] if self.recipe.protocol == "recall" else report["map"]
        number = value["mean"] if isinstance(value, dict) else value
        assert isinstance(number, int | float)
        return float(number)

    # ---- stopping and going on ----

    def save(self) -> None:
        """Everything needed to go on from this very step, in one file that is replaced whole."""
        began = time.monotonic()
        if self.chief and self._healthy():
            self._save()
        self.saved_at = time.monotonic()
        self.save_cost = self.saved_at - began

    def _healthy(self) -> bool:
        """A state that is lost already must not take the place of the last good one."""
        return not self.losses or bool(torch.stack(self.losses).isfinite().all())

    def _save(self) -> None:
        place = {"epoch": self.epoch, "phase": self.phase, "step": self.step, "total_steps": self.total_steps}
        checkpoints.save_tree(
            self.folder / "state" / "latest.safetensors",
            {
                "place": place,
                "networks": {name: network.state_dict() for name, network in self.networks.items()},
                "strategy": self.recipe.strategy.state_dict(),
                "losses": torch.stack(self.losses) if self.losses else None,
                "seen": self._evidence_so_far(),
                "history": list(self.history),
                "log": self.log,
                "best": vars(self.best),
                "waited": self.waited,
            },
            by=self.writer,
        )

    def _evidence_so_far(self) -> tuple[torch.Tensor, torch.Tensor] | None:
        rows, values = [rows for rows, _ in self.seen], [value for _, value in self.seen]
        return (torch.cat(rows), torch.cat(values)) if self.seen else None

    def _write_log(self) -> None:
        files.write_text(self.folder / "log.jsonl", "".join(json.dumps(line) + "\n" for line in self.log))
        if self.history:
            files.write_array(self.folder / "evidence.npy", np.stack(self.history))

    def resume(self) -> bool:
        """Take back the last saved state; False where there is none."""
        path = self.folder / "state" / "latest.safetensors"
        if not path.exists():
            return False
        state = checkpoints.load_tree(path)
        for name, value in state["place"].items():
            setattr(self, name, value)
        for name, network in self.networks.items():
            network.load_state_dict(state["networks"][name])
        self.recipe.strategy.load_state_dict(state["strategy"])
        self.losses = [] if state["losses"] is None else list(state["losses"].to(self.device))
        self.seen = [] if state["seen"] is None else [tuple(part.to(self.device) for part in state["seen"])]
        self.history, self.log = list(state["history"]), list(state["log"])
        self.best, self.waited = Best(**state["best"]), state["waited"]
        self.resumed_from = self.total_steps
        return True

    def _write_run_files(self) -> None:
        """The files of a finished run."""
        if self.chief:
            if self.resumed_from is not None and self.log:  # killed after the last epoch: nothing was left to log
                self.log[-1]["resumed_from_step"] = self.resumed_from
            self._write_log()
            chosen = {"epoch": self.best.epoch, "select": self.recipe.select, "val": self.best.report}
            files.write_json(self.folder / "metrics.json", chosen)
        devices.barrier()
