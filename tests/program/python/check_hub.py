"""The cache of tern fetch and of huggingface_hub is one: check_hub.py ENDPOINT FOLDER PROGRAM.

Made for huggingface_hub 2.4.0. Exit status 77: it is not installed.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import urllib.request

endpoint, folder, program = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
os.environ.update(HF_ENDPOINT=endpoint, HF_HOME=str(folder / "home"), no_proxy="127.0.0.1", HF_HUB_DISABLE_TELEMETRY="1",
                  HF_HUB_DISABLE_PROGRESS_BARS="1")
for name in ("HF_HUB_CACHE", "HF_TOKEN", "HF_HUB_OFFLINE", "HUGGINGFACE_HUB_CACHE"):
    os.environ.pop(name, None)
try:
    import filelock
    import huggingface_hub as hub
    from huggingface_hub import _tree_cache
    from huggingface_hub.errors import LocalEntryNotFoundError
except ImportError:
    sys.exit(77)

cache = folder / "home/hub"
FILES = {"config.json", "model.safetensors", "vocab.txt"}


def tern(*words, **more):
    return subprocess.run([program, "fetch", *words], text=True, capture_output=True, **more)


def fetched(*words, **more):
    result = tern(*words, **more)
    assert result.returncode == 0, result.stderr
    return result.stdout.rstrip("\n")


def offline():
    return dict(os.environ, HF_HUB_OFFLINE="1")


def large_requests():
    with urllib.request.urlopen(endpoint + "/test/large") as answer:
        return json.load(answer)


def names(snapshot):
    return {str(path.relative_to(snapshot)) for path in pathlib.Path(snapshot).rglob("*") if path.is_file()}


def forget():
    """As a new process with an empty cache."""
    shutil.rmtree(cache, ignore_errors=True)
    _tree_cache._IN_MEMORY_TREE_CACHE.clear()


def check_found_by_python(revision):
    forget()
    snapshot = fetched("org/name", "--revision", revision)
    assert names(snapshot) == FILES, names(snapshot)
    before = large_requests()
    for name in FILES:
        found = hub.hf_hub_download("org/name", name, revision=revision, local_files_only=True)
        assert found == f"{snapshot}/{name}", found
        assert hub.try_to_load_from_cache("org/name", name, revision=revision) == found
        assert hub.hf_hub_download("org/name", name, revision=revision) == found  # asks the hub
    assert hub.snapshot_download("org/name", revision=revision, local_files_only=True) == snapshot
    assert hub.snapshot_download("org/name", revision=revision, allow_patterns=list(FILES)) == snapshot
    assert large_requests() == before
    report = hub.scan_cache_dir()
    assert not report.warnings, report.warnings
    (repo,) = report.repos
    assert repo.repo_id == "org/name" and repo.repo_type == "model"
    (found,) = repo.revisions
    assert str(found.snapshot_path) == snapshot and {file.file_name for file in found.files} == FILES
    assert revision == found.commit_hash or revision in found.refs, found.refs
    # huggingface_hub adds the files that Tern does not read, and Tern still finds its own.
    assert hub.snapshot_download("org/name", revision=revision) == snapshot
    assert fetched("org/name@" + revision, env=offline()) == snapshot


def check_found_by_tern(revision):
    forget()
    snapshot = hub.snapshot_download("org/name", revision=revision)
    before = large_requests()
    assert fetched("org/name@" + revision) == snapshot
    assert fetched("org/name@" + revision, env=offline()) == snapshot
    assert large_requests() == before
    # One file of several: Tern says which one is missing, with huggingface_hub's list and without.
    (pathlib.Path(snapshot) / "vocab.txt").unlink()
    result = tern("org/name@" + revision, env=offline())
    assert result.returncode == 1 and "lacks vocab.txt" in result.stderr, result.stderr
    forget()
    hub.hf_hub_download("org/name", "config.json", revision=revision)
    result = tern("org/name@" + revision, env=offline())
    assert result.returncode == 1 and "lacks model.safetensors" in result.stderr, result.stderr
    assert fetched("org/name@" + revision) == snapshot


def check_at_once():
    for _ in range(3):
        forget()
        before = large_requests()
        results = []
        threads = [
            threading.Thread(target=lambda: results.append(fetched("org/name"))),
            threading.Thread(target=lambda: results.append(hub.snapshot_download("org/name", allow_patterns=list(FILES)))),
            threading.Thread(target=lambda: results.append(fetched("org/name"))),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(results) == 3 and len(set(results)) == 1, results
        assert large_requests() == before + 1, (before, large_requests())
        assert names(results[0]) == FILES
        assert not list(cache.rglob("*.incomplete"))


def check_locks():
    forget()
    snapshot = fetched("org/name")
    link = pathlib.Path(snapshot) / "model.safetensors"
    etag = link.readlink().name
    lock_file = cache / ".locks/models--org--name" / (etag + ".lock")
    assert lock_file.exists()
    blob = link.resolve()
    whole = blob.read_bytes()
    blob.unlink()
    link.unlink()
    # Held by Python: Tern waits, and goes on where an older huggingface_hub was cut.
    blob.with_name(etag + ".incomplete").write_bytes(whole[:1000])
    with filelock.FileLock(lock_file):
        process = subprocess.Popen([program, "fetch", "org/name"], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        line = process.stderr.readline()
        assert line == "org/name: waiting for another process that fetches model.safetensors\n", line
        assert not blob.exists()
    out, err = process.communicate()
    assert process.returncode == 0 and out == snapshot + "\n", err
    assert "from byte 1000 on" in err, err
    assert blob.read_bytes() == whole
    # Held by Tern, which waits for a server that cuts the transfer again and again.
    process = subprocess.Popen([program, "fetch", "org/slow"], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    for line in process.stderr:
        if "continuing at byte" in line:
            break
    (lock_file,) = (cache / ".locks/models--org--slow").glob("?" * 64 + ".lock")
    try:
        filelock.FileLock(lock_file, timeout=0).acquire()
        raise AssertionError("Tern does not hold " + str(lock_file))
    except filelock.Timeout:
        pass
    process.kill()
    process.communicate()
    with filelock.FileLock(lock_file, timeout=10):
        pass
    try:
        hub.hf_hub_download("org/slow", "model.safetensors", local_files_only=True)
        raise AssertionError("a part of a file is taken for the whole")
    except LocalEntryNotFoundError:
        pass


def check_token():
    forget()
    result = tern("org/private")
    assert result.returncode == 1 and "HTTP 401" in result.stderr, result.stderr
    (folder / "home/token").write_text("hf_secret\n")
    assert hub.get_token() == "hf_secret"
    snapshot = fetched("org/private")
    assert hub.hf_hub_download("org/private", "config.json") == snapshot + "/config.json"
    (folder / "home/token").unlink()


for revision in ("main", "v1", "refs/pr/1", "a" * 40):
    check_found_by_python(revision)
    check_found_by_tern(revision)
check_at_once()
check_locks()
check_token()
print("huggingface_hub", hub.__version__, "and filelock", filelock.__version__)
