"""Region features by a detector of the transformers library: what is in a picture, where, and how it looks.

    found = detect(pairs, "hf:facebook/detr-resnet-50")     # 36 regions a picture: features, boxes, classes

DETR and its kin (Conditional, Deformable, RT-DETR, YOLOS, ...) have a state, a box and class scores for each of their
queries; OWLv2 has a class embedding, a box and how much of an object it is for each patch. A picture's regions are
those that score above 0.5 if there are as many as wanted, else the best whatever they score: with a fixed number, the
best either way. Pictures are resized whole to the detector's own size; boxes are parts of the picture, so its sides may
change unequally.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from matchlight.console import say
from matchlight.core import BadInput
from matchlight.data.formats.sources import ArrayFeatures
from matchlight.devices import pick_device
from matchlight.inputs.backbones.base import digest_of_weights, first_line
from matchlight.inputs.backbones.hub_backbones import processor_of
from matchlight.inputs.features.decode import decoded
from matchlight.inputs.features.fill import Rows, kept
from matchlight.inputs.features.pixel_stores import described, pictures_of, reported
from matchlight.inputs.features.store import FeatureStore
from matchlight.inputs.preprocessing import Preprocessing, stated

if TYPE_CHECKING:
    from matchlight.pairs import Pairs

REGIONS, SURE = 36, 0.5
BATCH = 4  # pictures at once: detectors are large
MORE = 7  # numbers of a region behind its features: box, area, class, score
NOBODY = -1  # the class of a region that no classifier named


@dataclass(frozen=True)
class Looked:
    """What a detector says of each of its regions, before any is chosen."""

    features: Tensor  # (N, Q, D)
    boxes: Tensor  # (N, Q, 4) middle, width and height in parts of the picture
    scores: Tensor  # (N, Q) 0 to 1
    classes: Tensor  # (N, Q) class numbers


class Detector(nn.Module):
    """A detector by name: a folder or a name on the hub, safetensors only, no remote code."""

    def __init__(self, name: str):
        super().__init__()
        if not name.startswith("hf:") or len(name) < 4:
            raise BadInput(f"--detector {name}: hf:NAME, as in hf:facebook/detr-resnet-50 or a folder")
        self.name = name
        self.network = _network(name[3:])
        says = stated(processor_of(name[3:]))
        self.preprocessing = Preprocessing(says.size, None, says.resample, says.mean, says.std, reducing=False)
        self.mean, self.std = (torch.tensor(part).view(-1, 1, 1) * 255 for part in (says.mean, says.std))

    @property
    def finds_by_patch(self) -> bool:
        """Whether it is an OWL: objects are patches, and no classes are fixed."""
        return hasattr(self.network, "objectness_predictor")

    @torch.inference_mode()
    def forward(self, pixels: Tensor) -> Looked:
        """(N, 3, H, W) pixels in 0..255 -> all regions it looks at."""
        seen = (pixels.float() - self.mean.to(pixels.device)) / self.std.to(pixels.device)
        return self._patches(seen) if self.finds_by_patch else self._queries(seen)

    def _queries(self, seen: Tensor) -> Looked:
        """DETR's way: a softmax with a last class "nothing", or a sigmoid a class where there is none."""
        network: Any = self.network
        out = network(pixel_values=seen)
        nothing = out.logits.shape[-1] == network.config.num_labels + 1
        likely = out.logits.softmax(-1)[..., :-1] if nothing else out.logits.sigmoid()
        scores, classes = likely.max(-1)
        return Looked(out.last_hidden_state[:, -scores.shape[1] :], out.pred_boxes, scores, classes)

    def _patches(self, seen: Tensor) -> Looked:
        """OWLv2's way: patches with a class embedding, a box, and how much of an object each is."""
        network: Any = self.network
        grid = network.image_embedder(seen)[0]
        patches = grid.flatten(1, 2)
        embeddings = network.class_predictor(patches)[1]
        scores = network.objectness_predictor(patches).sigmoid()
        return Looked(embeddings, network.box_predictor(patches, grid), scores, torch.full_like(scores, NOBODY).long())


def _network(name: str) -> nn.Module:
    try:
        from transformers import AutoConfig, AutoModelForObjectDetection, AutoModelForZeroShotObjectDetection
    except (ImportError, RuntimeError) as error:
        raise BadInput(
            f"hf:{name} needs transformers ({first_line(error)}): pip install 'matchlight[backbones]'"
        ) from None
    try:
        kind = AutoConfig.from_pretrained(name, trust_remote_code=False).model_type
        auto = AutoModelForZeroShotObjectDetection if kind == "owlv2" else AutoModelForObjectDetection
        return cast(nn.Module, auto.from_pretrained(name, trust_remote_code=False, use_safetensors=True)).eval()
    except Exception as error:  # the message is what helps
        raise BadInput(f"hf:{name} is no detector that can be had ({first_line(error)}); DETR and OWLv2 are") from None


def best_regions(looked: Looked, count: int) -> Looked:
    """The `count` regions of each picture that score best, the best first."""
    scores, place = looked.scores.topk(min(count, looked.scores.shape[1]), dim=1)
    features, boxes = (
        x.gather(1, place[..., None].expand(-1, -1, x.shape[2])) for x in (looked.features, looked.boxes)
    )
    return Looked(features, boxes, scores, looked.classes.gather(1, place))


def packed(looked: Looked) -> np.ndarray:
    """(N, R, D + 7): features, corners and area in parts of the picture, class, score; one array to keep."""
    x, y, width, height = looked.boxes.float().unbind(-1)
    corners = torch.stack([x - width / 2, y - height / 2, x + width / 2, y + height / 2], -1).clamp(0, 1)
    area = (corners[..., 2] - corners[..., 0]) * (corners[..., 3] - corners[..., 1])
    more = [area[..., None], looked.classes[..., None].float(), looked.scores[..., None].float()]
    return torch.cat([looked.features.float(), corners, *more], -1).cpu().numpy()


@dataclass(frozen=True)
class Detected:
    """Regions of every picture."""

    features: np.ndarray  # (N, R, D)
    boxes: np.ndarray  # (N, R, 5) left, top, right, bottom and area in parts of the picture
    objects: np.ndarray  # (N, R) class numbers; -1 where the detector names none
    scores: np.ndarray  # (N, R)

    def put_into(self, pairs: Pairs) -> Pairs:
        """The data set with regions in place of pictures."""
        features = ArrayFeatures(self.features)
        return replace(pairs, features=features, boxes=self.boxes, objects=self.objects, pictures=None)


def detect(pairs: Pairs, detector: str | Detector, *, device: str = "auto", regions: int = REGIONS) -> Detected:
    """The regions of all pictures, from the cache where they are there already; what was stopped goes on."""
    source, where = pictures_of(pairs), pick_device(device)
    network = (detector if isinstance(detector, Detector) else Detector(detector)).to(where).eval()
    first = packed(best_regions(network(torch.zeros(1, 3, *network.preprocessing.size, device=where)), regions))
    meta = described(pairs, source, network.preprocessing, what="features", backbone=network.name, kind="regions")
    meta |= {"weights": digest_of_weights(network.network, network.name), "dtype": "float32"}
    meta |= {"shape": (len(source), *first.shape[1:])}

    def produce(start: int) -> Iterator[Rows]:
        for rows, broken in decoded(source, start, network.preprocessing, BATCH):
            found = packed(best_regions(network(torch.from_numpy(rows).to(where)), regions))
            blank = [place - start for place in broken]
            found[blank], found[blank, :, -2] = 0, NOBODY
            start += len(rows)
            yield found, broken

    array = np.asarray(reported(kept(FeatureStore, meta, produce, None), pairs).array)
    features, boxes = array[..., :-MORE].astype(np.float16), np.array(array[..., -MORE:-2], np.float32)
    found = Detected(features, boxes, array[..., -2].astype(np.int64), np.array(array[..., -1]))
    sure = (found.scores > SURE).sum(1)
    say(f"{found.scores.shape[1]} regions a picture; {sure.mean():.1f} of them score above {SURE} on average")
    return found
