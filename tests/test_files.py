"""Files are written whole or not at all, and a folder is changed by one process at a time."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors import SafetensorError

from matchlight import files
from matchlight.cli.errors import explain
from matchlight.core import BadInput
from matchlight.data import cache

HOLD = """
import sys, time
from pathlib import Path
from matchlight import files
with files.locked(Path(sys.argv[1]), "working there"):
    print("held", flush=True)
    time.sleep(60)
"""


# ---- writing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("a.txt", lambda path: files.write_text(path, "one\ntwo\n")),
        ("a.json", lambda path: files.write_json(path, {"é": [1]})),
        ("a.npy", lambda path: files.write_array(path, np.arange(3))),
        ("a.npz", lambda path: files.write_npz(path, {"x": np.arange(3)})),
        ("a.b.npz", lambda path: files.write_npz(path, {"x": np.arange(3)}, compressed=False)),
    ],
)
def test_each_writer_makes_the_folder_and_leaves_its_file_alone_there(
    tmp_path: Path, name: str, write: Callable[[Path], None]
) -> None:
    write(tmp_path / "new" / name)
    write(tmp_path / "new" / name)  # over what is there
    assert [path.name for path in (tmp_path / "new").iterdir()] == [name]


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    files.write_json(tmp_path / "a.json", {"é": [1]})
    assert (tmp_path / "a.json").read_bytes() == '{\n  "é": [\n    1\n  ]\n}\n'.encode()
    assert files.read_json(tmp_path / "a.json", "a test") == {"é": [1]}
    files.write_npz(tmp_path / "a.npz", {"x": np.arange(3)})
    assert files.read_npz(tmp_path / "a.npz", "a test")["x"].tolist() == [0, 1, 2]


def test_a_draft_apart_has_a_folder_that_goes_with_it_and_is_removed_after_a_kill(tmp_path: Path) -> None:
    with files.replaced(tmp_path / "a.safetensors", apart=True) as draft:
        (draft.parent / ".tmpXyZ123").touch()  # what a writer keeps beside it
        draft.write_text("whole")
        assert files.is_draft(draft.parent) and draft.suffix == ".safetensors"
    assert [path.name for path in tmp_path.iterdir()] == ["a.safetensors"]
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    left = draft.parent.with_name(draft.parent.name.replace(str(os.getpid()), str(int(dead.stdout))))
    left.mkdir()
    (left / ".tmpXyZ123").touch()
    files.remove_leftovers(tmp_path, of="a")
    assert [path.name for path in tmp_path.iterdir()] == ["a.safetensors"]


@pytest.mark.parametrize("flush", [False, True])
def test_a_writer_that_fails_leaves_the_old_file_and_no_draft(tmp_path: Path, flush: bool) -> None:
    files.write_text(tmp_path / "a.txt", "old")
    with pytest.raises(KeyboardInterrupt), files.replaced(tmp_path / "a.txt", flush=flush) as draft:
        draft.write_text("ne")
        raise KeyboardInterrupt
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"] and (tmp_path / "a.txt").read_text() == "old"


def test_text_that_cannot_be_encoded_leaves_no_draft(tmp_path: Path) -> None:
    with pytest.raises(UnicodeEncodeError):
        files.write_text(tmp_path / "a.txt", "\ud800")
    assert not list(tmp_path.iterdir())


def test_a_new_file_has_the_permissions_that_any_file_of_the_user_has(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    with files.new_file(tmp_path / "new") as draft:
        draft.write_text("x")
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_path_that_cannot_be_written_is_told_before_the_work_begins(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="cannot write there"), files.new_file(tmp_path / "file" / "new"):
        pytest.fail("the work began")


# ---- a full disk -----------------------------------------------------------------------------------------------------


def on_a_full_disk(path: Path) -> Path:
    """The path, whose draft will be a device without room."""
    path.with_name(f".{path.stem}.{files._writer()}.tmp{path.suffix}").symlink_to("/dev/full")
    return path


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    "write",
    [
        lambda path: files.write_array(path, np.zeros(92160)),
        lambda path: files.write_npz(path, {"x": np.zeros(92160)}, compressed=False),
        lambda path: files.write_text(path, "x" * 92160),
    ],
)
def test_a_full_disk_is_one_clear_line_that_names_the_file(tmp_path: Path, write: Callable[[Path], None]) -> None:
    with pytest.raises(OSError, match="disk") as raised:
        write(on_a_full_disk(tmp_path / "a.bin"))
    assert explain(raised.value) == (2, [f"{tmp_path / 'a.bin'}: the disk is full; make room and run it again"])
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_known_by_the_words_of_every_library() -> None:
    counted = OSError("92160 requested and 9184 written")  # NumPy
    worded = SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")
    assert files.is_full(counted) and files.is_full(worded) and files.is_full(OSError(28, "No space"))
    assert not files.is_full(OSError(13, "Permission denied"))
    assert explain(counted) == (2, ["the disk is full; make room and run it again"])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_features_that_do_not_fit_the_disk_are_an_error_and_not_a_signal() -> None:
    from matchlight.data.formats.scan_writer import save_features
    from matchlight.data.formats.sources import ArrayFeatures

    with pytest.raises(OSError, match="No space left"):
        save_features(ArrayFeatures(np.zeros((9, 4), np.float32)), Path("/dev/full"))


# ---- what dead processes leave behind --------------------------------------------------------------------------------


def write_and_be_killed(folder: Path) -> None:
    with files.replaced(folder / "recipe.json"), files.new_file(folder / "CURRENT"), files.new_folder(folder / "copy"):
        os.kill(os.getpid(), signal.SIGKILL)


def killed_while_writing(folder: Path) -> list[str]:
    """The drafts that a process leaves in a folder when it is killed."""
    folder.mkdir(exist_ok=True)
    other = multiprocessing.get_context("fork").Process(target=write_and_be_killed, args=(folder,))
    other.start()
    other.join()
    assert other.exitcode == -signal.SIGKILL
    return sorted(path.name for path in folder.iterdir())


def test_drafts_of_a_killed_process_do_not_make_a_folder_taken_and_are_removed(tmp_path: Path) -> None:
    left = killed_while_writing(tmp_path)
    assert len(left) == 3 and all(files.is_draft(Path(name)) for name in left)
    assert files.is_free(tmp_path) and not list(tmp_path.iterdir())
    for old in (".recipe.json.{}.tmp", ".settings.json.{}.tmp", ".CURRENT.{}.tmp"):  # as they were called at first
        (tmp_path / old.format(left[0].split(".")[2].split("-")[0])).touch()
    assert files.is_free(tmp_path) and not list(tmp_path.iterdir())


def test_a_new_folder_or_file_removes_what_was_left_of_it_and_nothing_else(tmp_path: Path) -> None:
    killed_while_writing(tmp_path)
    (tmp_path / ".copy.mine").mkdir()
    with files.new_folder(tmp_path / "copy") as draft:
        (draft / "a").touch()
    with files.new_file(tmp_path / "recipe.json") as draft:
        draft.touch()
    names = {path.name.split("-")[0].rstrip("0123456789") for path in tmp_path.iterdir()}
    assert names == {"copy", "recipe.json", ".copy.mine", ".CURRENT."}


def test_a_draft_of_a_draft_is_known_by_what_will_come_of_it(tmp_path: Path) -> None:
    dead = killed_while_writing(tmp_path / "other")[0].split(".")[2]
    for name in (f"..out.{dead}.abcdefgh.tmp.{dead}.ijklmnop.tmp", f"..outer.{dead}.abcdefgh.tmp.{dead}.ijklmnop.tmp"):
        (tmp_path / name).mkdir()
    with files.new_folder(tmp_path / "out") as draft:
        (draft / "a").touch()
    assert [path.name.split(".")[2] for path in tmp_path.glob("..*")] == ["outer"]


def test_a_folder_that_is_held_is_rid_of_old_drafts_in_all_its_folders(tmp_path: Path) -> None:
    (tmp_path / "run" / "state").mkdir(parents=True)
    killed_while_writing(tmp_path / "run" / "state")
    with files.locked(tmp_path / "run", "training into it"):
        assert not list((tmp_path / "run" / "state").iterdir())


def test_an_entry_of_the_cache_that_is_held_is_rid_of_old_drafts(tmp_path: Path) -> None:
    killed_while_writing(tmp_path)
    with cache.locked(tmp_path):
        assert not any(files.is_draft(path) for path in tmp_path.iterdir())


def test_drafts_of_a_process_that_runs_stay(tmp_path: Path) -> None:
    with files.replaced(tmp_path / "a.json") as draft, files.new_folder(tmp_path / "copy") as folder:
        elsewhere = tmp_path / ".a.4194304-00000000.tmp.json"  # of another machine: nobody here can ask
        elsewhere.touch()
        files.remove_leftovers(tmp_path)
        assert draft.exists() and folder.exists() and elsewhere.exists() and files.is_free(tmp_path)


# ---- locks -----------------------------------------------------------------------------------------------------------


def test_a_second_process_is_told_who_holds_the_folder(tmp_path: Path) -> None:
    told = rf"another process is working there \(process {os.getpid()} on .+\); wait"
    with files.locked(tmp_path, "working there"):
        with pytest.raises(BadInput, match=told) as problem, files.locked(tmp_path, "working there"):
            pytest.fail("both hold it")
        with files.try_lock(tmp_path) as mine:
            assert not mine
    assert len(str(problem.value).splitlines()) == 1
    with files.try_lock(tmp_path) as mine:
        assert mine


def test_nothing_is_left_in_a_folder_that_was_let_go_of(tmp_path: Path) -> None:
    with files.locked(tmp_path / "new", "working there"):
        assert files.is_free(tmp_path / "new")
    assert not list((tmp_path / "new").iterdir())


@pytest.mark.parametrize("problem", [BlockingIOError(11, "busy"), TimeoutError("slow"), OSError(28, "full")])
def test_an_error_of_the_work_is_not_taken_for_another_process(tmp_path: Path, problem: OSError) -> None:
    with pytest.raises(type(problem)) as raised, files.locked(tmp_path, "working there"):
        raise problem
    assert raised.value is problem
    with pytest.raises(type(problem)) as raised, files.try_lock(tmp_path):
        raise problem
    assert raised.value is problem and not list(tmp_path.iterdir())


def test_a_process_that_was_killed_holds_nothing_and_its_lock_file_is_in_nobodys_way(tmp_path: Path) -> None:
    other = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None and other.stdout.readline() == "held\n"
    with pytest.raises(BadInput, match=f"process {other.pid} on "), files.locked(tmp_path, "working there"):
        pytest.fail("both hold it")
    other.send_signal(signal.SIGKILL)
    other.wait()
    other.stdout.close()
    assert (tmp_path / files.LOCK).exists() and files.is_free(tmp_path)
    with files.locked(tmp_path, "working there"):
        assert files.Lock(tmp_path / files.LOCK).holder().startswith(f"process {os.getpid()} on ")
    assert not list(tmp_path.iterdir())


def test_a_lock_whose_folder_was_removed_leaves_the_next_one_alone(tmp_path: Path) -> None:
    first, second = (files.Lock(tmp_path / "a" / files.LOCK) for _ in range(2))
    assert first.acquire()
    (tmp_path / "a" / files.LOCK).unlink()
    assert second.acquire()
    (tmp_path / "a" / files.LOCK).write_text("process 1 on another machine")
    first.release()
    assert (tmp_path / "a" / files.LOCK).exists()
    second.release()


def test_a_folder_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="file: cannot write there: "), files.locked(tmp_path / "file", "working there"):
        pytest.fail("it was held")


def test_a_file_system_without_locks_is_worked_on_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno

    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(files.FileLock, "acquire", refused)
    with files.try_lock(tmp_path) as mine:
        assert mine


def test_a_folder_is_free_until_something_of_somebodys_is_in_it(tmp_path: Path) -> None:
    assert files.is_free(tmp_path / "none") and files.is_free(tmp_path)
    (tmp_path / files.LOCK).touch()
    assert files.is_free(tmp_path)
    (tmp_path / "mine").touch()
    assert not files.is_free(tmp_path) and not files.is_free(tmp_path / "mine")


def test_an_audit_that_goes_on_removes_the_drafts_of_the_one_that_was_killed(tmp_path: Path) -> None:
    from matchlight.auditing.options import claim

    assert claim(tmp_path / "audit", {"seed": 0})
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    for name in (".signals.{}.tmp.npz", ".report.{}.tmp.html"):
        (tmp_path / "audit" / name.format(int(dead.stdout))).touch()
    assert not claim(tmp_path / "audit", {"seed": 0})
    assert [path.name for path in (tmp_path / "audit").iterdir()] == ["settings.json"]


@pytest.mark.parametrize("name", [".recipe.json.{}.tmp", ".settings.json.{}.tmp", ".CURRENT.{}.tmp"])
def test_no_draft_of_a_dead_process_stands_in_the_way_of_a_run_an_audit_or_an_index(tmp_path: Path, name: str) -> None:
    from matchlight.auditing import signals
    from matchlight.indexing import versions
    from matchlight.runs.claiming import check_free

    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    for number, begin in enumerate(
        (lambda out: check_free(out, resume=False), lambda out: signals.claim(out, {}), versions.check_free)
    ):
        out = tmp_path / str(number)
        out.mkdir()
        (out / name.format(int(dead.stdout))).touch()
        begin(out)  # raised "not empty and not a run"
        with versions.locked(out):
            assert not any(map(files.is_draft, out.iterdir()))
