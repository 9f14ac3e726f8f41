"""Files of the local disk."""

import threading

import pytest

from pairbus.runtime import Files, LocalFiles

files: Files = LocalFiles()


@pytest.mark.parametrize("sync", [False, True])
def test_file_is_replaced_whole(tmp_path, sync):
    path = tmp_path / "state.json"
    files.write(path, b"old", sync=sync)
    files.write(path, b"new", sync=sync)
    assert files.read(path) == b"new"
    assert files.list(tmp_path) == ["state.json"]


def test_failed_write_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "state.json"
    files.write(path, b"old")
    with pytest.raises(TypeError):
        files.write(path, "text")
    assert files.read(path) == b"old"
    assert files.list(tmp_path) == ["state.json"]


def test_appending_by_two_writers(tmp_path):
    path = tmp_path / "log"
    one, other = files.open_append(path), files.open_append(path, create=False)
    one.write(b"a", b"bc")
    other.write(b"d")
    one.write(b"e")
    one.sync()
    assert one.size == other.size == 5
    assert files.read(path) == b"abcde"
    one.truncate(2)
    other.write(b"z")
    assert files.read(path) == b"abz"
    one.close()
    one.close()
    other.close()


def test_missing_files(tmp_path):
    with pytest.raises(FileNotFoundError):
        files.read(tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        files.open_append(tmp_path / "none", create=False)
    assert files.info(tmp_path / "none") is None
    assert files.list(tmp_path / "none") == []
    files.remove(tmp_path / "none")
    files.remove_folder(tmp_path / "none")


def test_every_new_folder_survives_a_power_failure(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr("pairbus.runtime.files.sync_folder", synced.append)
    files.make_folder(tmp_path / "a" / "b" / "c", sync=True)
    assert sorted(synced) == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]


def test_folders(tmp_path):
    folder = tmp_path / "a" / "b"
    files.make_folder(folder, mode=0o700)
    files.make_folder(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    files.write(folder / "x", b"12")
    info = files.info(folder / "x")
    assert info is not None
    assert info.size == 2
    with pytest.raises(OSError):  # noqa: PT011 - not empty
        files.remove_folder(folder)
    files.remove(folder / "x")
    files.remove_folder(folder)
    assert files.list(tmp_path / "a") == []


def test_lock_file_has_one_holder(tmp_path):
    path = tmp_path / "lock"
    got_it = threading.Event()

    def other():
        with files.lock(path):
            got_it.set()

    with files.lock(path):
        with pytest.raises(BlockingIOError), files.lock(path, block=False):
            pass
        thread = threading.Thread(target=other, daemon=True)
        thread.start()
        assert not got_it.wait(0.02)
    assert got_it.wait(60)
    thread.join(60)
    with files.lock(path, block=False):
        pass
