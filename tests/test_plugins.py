"""Plug-ins: ours and an installed package's come the same way, and a broken one is one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from matchlight import plugins
from matchlight.core import BadInput


def test_an_installed_package_adds_an_engine_without_any_change_here(install_plugin):
    install_plugin("sea", "class Sea: pass", {"matchlight.engines": {"sea": "sea:Sea"}})
    assert plugins.names("engines") == ["faiss", "milvus", "sea"]
    assert plugins.load("engines", "sea").__name__ == "Sea"


def test_our_own_entries_are_addresses_in_the_same_notation():
    from matchlight.indexing.engines.faiss import Faiss

    assert plugins.load("engines", "faiss") is Faiss


@pytest.mark.parametrize("group", plugins.BUILT_IN)
def test_every_address_of_ours_leads_somewhere(group):
    for name in plugins.BUILT_IN[group]:
        assert plugins.load(group, name) is not None


def test_a_plug_in_that_cannot_be_imported_is_one_line_and_the_others_work(install_plugin, capsys):
    install_plugin("broken", "raise RuntimeError('no\\nluck')", {"matchlight.engines": {"lost": "broken:Lost"}})
    install_plugin("sea", "class Sea: pass", {"matchlight.engines": {"sea": "sea:Sea"}})
    assert {name for name, _ in plugins.working("engines", built_in=False)} == {"sea"}
    line = "broken brings 'lost' to matchlight.engines, but broken:Lost cannot be loaded (RuntimeError: no luck)\n"
    assert capsys.readouterr().err == line
    assert plugins.load("engines", "faiss")  # needs none of it
    with pytest.raises(BadInput, match="broken brings 'lost'"):
        plugins.load("engines", "lost")


def test_a_name_of_ours_cannot_be_taken(install_plugin, capsys):
    from matchlight.indexing.engines.faiss import Faiss

    install_plugin("thief", "Faiss = None", {"matchlight.engines": {"faiss": "thief:Faiss"}})
    assert plugins.load("engines", "faiss") is Faiss
    err = capsys.readouterr().err
    assert err == "thief brings 'faiss' to matchlight.engines, a name matchlight has already; matchlight's is used\n"


def test_an_unknown_name_says_which_are_known():
    with pytest.raises(BadInput, match="'lucene' is not among matchlight.engines; known: faiss, milvus"):
        plugins.load("engines", "lucene")


def test_listing_names_loads_neither_torch_nor_a_plug_in():
    code = (
        "import sys, matchlight.plugins as p; p.names('engines'); print('torch' in sys.modules, 'faiss' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[1])
    assert done.stdout.split() == ["False", "False"], done.stderr
