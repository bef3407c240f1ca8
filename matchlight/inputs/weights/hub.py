"""Files of the Hugging Face hub, by the hub's own client where it is installed; it goes on where it stopped."""

from __future__ import annotations

import os
import re
import socket
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import getproxies

from matchlight.console import say
from matchlight.core import BadInput
from matchlight.files import FULL, is_full
from matchlight.inputs.weights.download import Unreachable, check_sha256
from matchlight.inputs.weights.known_weights import Hub

if TYPE_CHECKING:
    from collections.abc import Iterator

LOGIN = "ask for access on its page, then `hf auth login` or HF_TOKEN=... lets you in"
SAFE = "model.safetensors"
PATIENCE = 10.0  # seconds for a first answer


def fetch(hub: Hub, folder: Path) -> Path:
    """All files of a repository that are wanted, in a folder; the weights with the sha256 that is known or stated."""
    _client()
    if not is_known():
        raise Unreachable("the hub cannot be reached")
    say(f"{hub.repository} from the hub")
    for file in hub.files:
        with _explained(hub, file):
            path = _file(hub, file, folder)
        wanted = hub.sha256.get(file) or (_stated(hub, file) if file == SAFE else None)
        if wanted:
            check_sha256(path, wanted, source=f"the hub's {hub.repository}")
    return folder


def is_known() -> bool:
    """False if nobody answers at the hub's address: its own client would try for a minute before it says so."""
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
        return False
    if getproxies():
        return True
    address = urlsplit(_endpoint() or "https://huggingface.co")
    try:
        socket.create_connection((address.hostname, address.port or 443), timeout=PATIENCE).close()
    except OSError:
        return False
    return True


def _endpoint() -> str | None:
    return os.environ.get("HF_ENDPOINT") or None


def _client() -> None:
    try:
        import huggingface_hub  # noqa: F401
    except ImportError:
        raise Unreachable("the hub's client is not installed (pip install huggingface_hub)") from None


def _file(hub: Hub, file: str, folder: Path) -> Path:
    from huggingface_hub import hf_hub_download

    return Path(str(hf_hub_download(hub.repository, file, local_dir=folder, endpoint=_endpoint())))


def _stated(hub: Hub, file: str) -> str | None:
    """The sha256 that the hub states for a large file."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url

    with _explained(hub, file):
        mark = get_hf_file_metadata(hf_hub_url(hub.repository, file, endpoint=_endpoint()), endpoint=_endpoint()).etag
    return mark if mark and re.fullmatch("[0-9a-f]{64}", mark) else None


@contextmanager
def _explained(hub: Hub, file: str) -> Iterator[None]:
    """What goes wrong on the hub's side, as one line; what another source may cure is `Unreachable`."""
    from huggingface_hub import errors

    name = f"the hub's {hub.repository}"
    try:
        yield
    except errors.LocalEntryNotFoundError:  # the client's word for no connection
        raise Unreachable("the hub cannot be reached") from None
    except errors.EntryNotFoundError:
        why = "; weights in pickled files are not opened" if file == SAFE else ""
        raise BadInput(f"{name} has no {file}{why}") from None
    except errors.HfHubHTTPError as problem:
        code = getattr(getattr(problem, "response", None), "status_code", 0)
        if code in (401, 403):
            raise BadInput(f"{name} answers {code}: it is gated or private; {LOGIN}") from None
        raise Unreachable(f"{name} answers {code or 'nothing of use'}") from None
    except (errors.OfflineModeIsEnabled, ConnectionError, TimeoutError):
        raise Unreachable("the hub cannot be reached") from None
    except OSError as problem:
        if is_full(problem):
            raise BadInput(f"{FULL} ({name})") from None
        raise Unreachable(f"{name}: the download stopped ({problem}); the same command goes on") from None
