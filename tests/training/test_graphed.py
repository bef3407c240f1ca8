"""Steps kept as graphs, on a CPU: the record is made by a stand-in that does the work on the graph's own inputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from matchlight.core import Named
from matchlight.inputs.batches import collate, filled, tensors_of, with_tensors
from matchlight.inputs.prepare import View, prepare
from matchlight.training.graphed import SEEN, Graphs, Replay, signature
from matchlight.training.registry import methods
from matchlight.training.trainer import Trainer
from tests.tiny import tiny_pairs

SETTINGS = {"dim": 16, "hidden": 8, "word_dim": 8, "batch": 8, "rate": 2e-3, "epochs": 8}


class StandIn(Graphs):
    """Keeps steps without a GPU: what was recorded is done again on the inputs it was recorded with."""

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))
        self.records = self.replays = 0

    def record(self, work: Callable[[], Named], pool: object) -> Replay:
        self.records += 1

        def replay() -> Named:
            self.replays += 1
            return work()

        return replay


def trainer(folder: Path, method: str, graphs: Graphs | None, **more: object) -> Trainer:
    inputs = prepare(tiny_pairs(), View("given"), device=torch.device("cpu"))
    made = methods()[method]
    known = {name: value for name, value in SETTINGS.items() if name in made.defaults}
    folder.mkdir(exist_ok=True)
    run = Trainer(folder, made.build(inputs.sizes, **{**made.defaults, **known, **more}), inputs)
    run.graphs = graphs
    for network in run.networks.values() if graphs else ():
        network.keep_steps(graphs)
    return run


@pytest.mark.parametrize(
    ("method", "more"),
    [("vse_infty", {}), ("vse_infty", {"harden": 5}), ("ncr+", {}), ("lantern", {"sentences": None})],
)
def test_replayed_steps_are_the_steps_there_would_have_been(method: str, more: dict, tmp_path: Path) -> None:
    plain, kept = trainer(tmp_path / "plain", method, None, **more), StandIn()
    graphed = trainer(tmp_path / "graphed", method, kept, **more)
    for run in (plain, graphed):
        run.fit()
    assert kept.records > 0 and kept.replays > kept.records and not kept.refused
    assert [line["loss"] for line in graphed.log] == pytest.approx([line["loss"] for line in plain.log], rel=1e-5)
    np.testing.assert_allclose(graphed.history, plain.history, rtol=2e-3)


def test_a_run_that_goes_on_records_again_and_ends_alike(tmp_path: Path) -> None:
    whole = trainer(tmp_path / "run", "vse_infty", StandIn())
    whole.fit()
    whole.writer.flush()
    again = trainer(tmp_path / "run", "vse_infty", StandIn())
    before = again.networks["A"].graphed
    assert again.resume() and again.networks["A"].graphed is not before
    assert all(isinstance(group["lr"], torch.Tensor) for group in again.networks["A"].optimiser.param_groups)
    first, second = (run.networks["A"].matcher.state_dict() for run in (whole, again))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_step_that_cannot_be_recorded_is_done_as_usual_and_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Broken(StandIn):
        def record(self, work: Callable[[], Named], pool: object) -> Replay:
            raise RuntimeError("operation not permitted when stream is capturing")

    plain, graphed = trainer(tmp_path / "a", "vse_infty", None), trainer(tmp_path / "b", "vse_infty", Broken())
    for run in (plain, graphed):
        run.fit()
    assert [line["loss"] for line in graphed.log] == pytest.approx([line["loss"] for line in plain.log], rel=1e-5)
    assert capsys.readouterr().err.count("steps are launched one kernel at a time") == 1


def test_a_step_that_waits_for_the_device_is_not_recorded(tmp_path: Path) -> None:
    class Waiting(StandIn):
        def watched(self):
            from contextlib import contextmanager

            @contextmanager
            def told():
                yield ["encoder.py:7"]

            return told()

    kept = Waiting()
    trainer(tmp_path / "run", "vse_infty", kept).fit()
    assert kept.refused.startswith("encoder.py:7 waits") and not kept.records


def test_shapes_seen_once_are_not_recorded(tmp_path: Path) -> None:
    kept = StandIn()
    run = trainer(tmp_path / "run", "vse_infty", kept)
    phase = run.recipe.strategy.phases(run, 0)[0]
    for size in (4, 5, 6, *[7] * (SEEN + 2)):
        run._step(run.networks["A"], phase, filled(collate(run.table, run.rows[:size])), 10)
        run.step += 1
    assert kept.records == 1 and kept.replays == 2


def test_a_shape_that_few_steps_have_is_not_recorded(tmp_path: Path) -> None:
    kept = StandIn()
    run = trainer(tmp_path / "run", "vse_infty", kept)
    phase = run.recipe.strategy.phases(run, 0)[0]
    for size in (*[7] * 60, *[5] * (SEEN + 2)):
        run._step(run.networks["A"], phase, filled(collate(run.table, run.rows[:size])), 100)
        run.step += 1
    assert kept.records == 1


def test_a_batch_is_made_again_from_its_tensors(tmp_path: Path) -> None:
    run = trainer(tmp_path / "run", "vse_infty", None)
    batch = collate(run.table, run.rows[:6]).with_extra(trust=torch.rand(6))
    again = with_tensors(batch, tensors_of(batch))
    assert "length" not in again.sides["text"].extra
    assert tensors_of(again).keys() == tensors_of(batch).keys()
    assert all(tensors_of(again)[name] is value for name, value in tensors_of(batch).items())


def test_losses_with_other_settings_are_told_apart() -> None:
    from matchlight.parts.objectives import Hinge, SoftmaxLoss

    assert signature(Hinge(margin=0.2)) == signature(Hinge(margin=0.2)) != signature(Hinge(margin=0.3))
    assert signature(SoftmaxLoss("gce")) != signature(SoftmaxLoss("rclog"))


def test_filling_up_captions_changes_nothing_but_the_shape(tmp_path: Path) -> None:
    run = trainer(tmp_path / "run", "vse_infty", None)
    matcher = run.networks["A"].matcher.eval()
    batch = collate(run.table, run.rows[1::2])
    wide = filled(batch)
    assert wide.sides["text"].x.shape[1] % 8 == 0 != batch.sides["text"].x.shape[1] % 8
    seen = [matcher.embed("text", one.sides["text"]).vectors for one in (batch, wide)]
    torch.testing.assert_close(seen[0], seen[1])
