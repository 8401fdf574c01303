"""Weaves changes into a copy of the sources: one build has them all, and the environment says which one is on.

Building each change by itself would take longer than running it. `rust/run` weaves mutants, `planted/run` mistakes.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
from dataclasses import dataclass, field

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
SOURCES = ["Cargo.toml", "Cargo.lock", "clippy.toml", "crates", "testing", ":!testing/mutants"]

SWITCH = """
/// Which change is on.
#[doc(hidden)]
pub mod mutants {
    static ON: std::sync::LazyLock<u32> =
        std::sync::LazyLock::new(|| std::env::var("LEASEHOLD_MUTANT").ok().and_then(|n| n.parse().ok()).unwrap_or(0));

    /// Whether this one is.
    #[inline]
    pub fn on(number: u32) -> bool {
        *ON == number
    }
}
"""
CORE = "crates/core/src/lib.rs"


@dataclass(kw_only=True)
class Change:
    """What is woven in where, in bytes of a file: `kind` says how. Changes with the same number are on together."""

    file: str
    kind: str
    start: int
    end: int
    after: str
    number: int = field(default=0, compare=False)


class Copy:
    """A copy of the sources, in a folder of the target folder: as they are, and woven."""

    def __init__(self, name):
        self.folder = TARGET / name
        self.pristine, self.tree, self.target = self.folder / "pristine", self.folder / "tree", self.folder / "build"

    def copy_sources(self):
        """Files that did not change keep their time, so that nothing is built again for them."""
        command = ["git", "ls-files", "-co", "--exclude-standard", *SOURCES]
        wanted = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
        files = {file for file in wanted.stdout.splitlines() if (ROOT / file).is_file()}
        for file in files:
            source, copy = ROOT / file, self.pristine / file
            copy.parent.mkdir(parents=True, exist_ok=True)
            if not copy.exists() or copy.read_bytes() != source.read_bytes():
                shutil.copy2(source, copy)
        for path in [path for path in self.pristine.rglob("*") if path.is_file()]:
            if str(path.relative_to(self.pristine)) not in files:
                path.unlink()

    def weave(self, changes):
        """Makes the tree: the sources with these changes in them."""
        by_file = {CORE: []}
        for change in changes:
            by_file.setdefault(change.file, []).append(change)
        files = {str(path.relative_to(self.pristine)) for path in self.pristine.rglob("*") if path.is_file()}
        for file in files:
            text, path = (self.pristine / file).read_bytes(), self.tree / file
            if file in by_file:
                text = woven_file(file, text, by_file[file]) + (SWITCH.encode() if file == CORE else b"")
            if not path.exists() or path.read_bytes() != text:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(text)
        for path in [path for path in self.tree.rglob("*") if path.is_file()]:
            if str(path.relative_to(self.tree)) not in files:
                path.unlink()

    def environment(self):
        """What is woven in may well be against the lints."""
        quiet = f"{os.environ.get('RUSTFLAGS', '')} --cap-lints allow".strip()
        return dict(os.environ, CARGO_TARGET_DIR=str(self.target), RUSTFLAGS=quiet)

    def build(self, package, what, profile):
        """Builds a program, or the one that tests; answers where it is."""
        verb = ["build"] if what == "--bins" else ["test", "--no-run"]
        command = ["cargo", *verb, "--locked", "--profile", profile, "-p", package, what, "--message-format=json"]
        built = subprocess.run(command, cwd=self.tree, env=self.environment(), stdout=subprocess.PIPE, text=True)
        made = [json.loads(line) for line in built.stdout.splitlines()]
        if built.returncode:
            messages = [entry["message"]["rendered"] for entry in made if entry.get("message", {}).get("level") == "error"]
            raise SystemExit("\n".join(messages) + f"{package} does not compile with what is woven in, see {self.tree}")
        is_test = what != "--bins"
        [program] = {entry["executable"] for entry in made if entry.get("executable") and entry["profile"]["test"] == is_test}
        return program


def occurrences(text, wanted):
    """Where this stands in a text, whatever its white space."""
    words = [re.escape(word) for word in wanted.strip().encode().split()]
    pattern = rb"\s+".join(words)
    if wanted.strip()[0].isalnum():
        pattern = rb"(?<![\w.])" + pattern
    if wanted.strip()[-1].isalnum():
        pattern += rb"(?!\w|\()"
    return [found.span() for found in re.finditer(pattern, text)]


def kind_of(text):
    """How what stands there is replaced."""
    return "statements" if text.rstrip().endswith(";") else "expression"


def woven_file(file, text, mutants):
    """They stand at places that hold each other or have nothing in common."""
    switch = "crate::mutants::on" if file.startswith("crates/core/") else "leasehold_core::mutants::on"
    places = {}
    for mutant in mutants:
        # What deletes an arm goes before its guard, which stands in parentheses then.
        if mutant.kind == "guarded-arm":
            places.setdefault((mutant.start, mutant.start, "before-guard"), []).append(mutant)
            places.setdefault((mutant.start, mutant.end, "expression"), [])
        else:
            at = mutant.start + 1 if mutant.kind == "body" else mutant.start
            end = at if mutant.kind in ("body", "arm") else mutant.end
            places.setdefault((at, end, mutant.kind), []).append(mutant)
    # What holds others comes before them.
    order = sorted(places, key=lambda place: (place[0], -place[1] if place[1] > place[0] else -len(text)))
    return emit(text, 0, len(text), order, places, switch)


def emit(text, start, end, order, places, switch):
    out, at, i = [], start, 0
    while i < len(order):
        place = order[i]
        first, last, kind = place
        inner = [other for other in order[i + 1 :] if first <= other[0] and other[1] <= last and last > first]
        out.append(text[at:first])
        out.append(emit_place(text, place, inner, places, switch))
        at, i = last, i + 1 + len(inner)
    out.append(text[at:end])
    return b"".join(out)


def emit_place(text, place, inner, places, switch):
    first, last, kind = place
    mutants = places[place]
    on = lambda mutant: f"{switch}({mutant.number})"
    marked = lambda mutant, code: f"/*<{mutant.number}*/{code}/*{mutant.number}>*/"
    if kind == "body":
        return "".join(f" if {on(m)} {{ return {marked(m, m.after)}; }}" for m in mutants).encode()
    if kind == "arm":
        return (" if " + " && ".join(marked(m, f"!{on(m)}") for m in mutants)).encode()
    if kind == "before-guard":
        return "".join(marked(m, f"!{on(m)}") + " && " for m in mutants).encode()
    original = emit(text, first, last, inner, places, switch)
    if kind == "expression" and not mutants:
        return b"(" + original + b")"
    # The original comes first, so that it is the mutants that do not fit where types differ.
    none = " && ".join(f"!{on(m)}" for m in mutants)
    branches = [f"if {on(m)} {{ {marked(m, m.after)} }}" for m in mutants[:-1]] + [f"{{ {marked(mutants[-1], mutants[-1].after)} }}"]
    woven = f"if {none} {{ ".encode() + original + f" }} else {' else '.join(branches)}".encode()
    return woven if kind == "statements" else b"(" + woven + b")"


def check(copy, packages):
    """Compiles; answers the numbers of mutants that the compiler objects to, none where it is content."""
    command = ["cargo", "check", "--locked", "--message-format=json", *packages]
    shown = subprocess.run(command, cwd=copy.tree, env=copy.environment(), capture_output=True, text=True)
    if shown.returncode == 0:
        return set()
    bad, elsewhere = set(), []
    for line in shown.stdout.splitlines():
        message = json.loads(line).get("message") or {}
        if message.get("level") != "error" or not message.get("spans"):
            continue
        guilty = set()
        # A note may point into the standard library.
        spans = [span for span in message["spans"] if not pathlib.Path(span["file_name"]).is_absolute()]
        for span in spans:
            guilty |= marked_at(copy.tree / span["file_name"], span["byte_start"], span["byte_end"], within=True)
        for span in spans if not guilty else []:
            guilty |= marked_at(copy.tree / span["file_name"], span["byte_start"], span["byte_end"], within=False)
        bad |= guilty
        if not guilty:
            elsewhere.append(message.get("rendered", ""))
    if not bad:
        raise SystemExit("mutants do not compile, and it cannot be said which:\n" + "\n".join(elsewhere) + shown.stderr[-2000:])
    return bad


def marked_at(path, start, end, within):
    """Which mutants' own code has a place in it, or has something in common with it."""
    text = path.read_bytes()
    found = set()
    for mark in re.finditer(rb"/\*<(\d+)\*/", text):
        close = text.find(b"/*%s>*/" % mark[1], mark.end())
        if (mark.start() <= start and end <= close) if within else (mark.start() <= end and start <= close):
            found.add(int(mark[1]))
    return found
