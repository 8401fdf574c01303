"""Weaves mutants into a copy of the sources: one build has them all, and the environment says which one is on.

Building each mutant by itself would take longer than running it. Those that do not compile are found by the compiler's complaints
and left out.
"""

import json
import re
import subprocess

SWITCH = """
/// Which mutant is on.
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


def weave(sources, tree, mutants):
    """Writes every file of `tree` that has mutants, from its text in `sources`."""
    by_file = {}
    for mutant in mutants:
        by_file.setdefault(mutant.file, []).append(mutant)
    for file, text in sources.items():
        woven = woven_file(text, by_file.get(file, [])) + (SWITCH.encode() if file == CORE else b"")
        path = tree / file
        if path.read_bytes() != woven:
            path.write_bytes(woven)


def woven_file(text, mutants):
    """Mutants stand at places that hold each other or have nothing in common."""
    switch = "crate::mutants::on" if any(mutant.crate == "core" for mutant in mutants) else "leasehold_core::mutants::on"
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


def check(tree, environment, packages):
    """Compiles; answers the numbers of mutants that the compiler objects to, none where it is content."""
    command = ["cargo", "check", "--locked", "--message-format=json", *packages]
    shown = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
    if shown.returncode == 0:
        return set()
    bad, elsewhere = set(), []
    for line in shown.stdout.splitlines():
        message = json.loads(line).get("message") or {}
        if message.get("level") != "error" or not message.get("spans"):
            continue
        guilty = set()
        for span in message["spans"]:
            guilty |= marked_at(tree / span["file_name"], span["byte_start"], span["byte_end"], within=True)
        for span in message["spans"] if not guilty else []:
            guilty |= marked_at(tree / span["file_name"], span["byte_start"], span["byte_end"], within=False)
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
