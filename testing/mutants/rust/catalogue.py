"""Which mutants there are: those that cargo-mutants lists, and the classes of our own."""

import json
import pathlib
import random
import re
import subprocess
import tomllib
from dataclasses import dataclass

import weaving

HERE = pathlib.Path(__file__).resolve().parent

# What decides. Of the file store, the rest opens files and talks to the system.
CRATES = {
    "core": "crates/core/src/**/*.rs",
    "file": "crates/stores/file/src/{database,rows,store,sweeper}.rs",
}
# Constants and tests.
LEFT_OUT = re.compile(r"(^|/)(capability|check|tests)(\.rs|/)")
# Functions that make words for people: a mutant there changes no decision.
WORDS = re.compile(r"\bError$|\bString$|&'static str$|^-> fmt::Result$|^-> std::fmt::Result$")


@dataclass(kw_only=True)
class Mutant(weaving.Change):
    """One change. It is known by what it changes, and not by where that stands."""

    crate: str
    function: str
    genre: str
    before: str
    # Which of several like it in one function.
    nth: int = 0
    # Of a class: its name.
    name: str | None = None

    @property
    def key(self):
        if self.name:
            return f"class {self.name}"
        again = f" #{self.nth + 1}" if self.nth else ""
        return f"{self.function}: {self.genre}: {self.before} => {self.after}{again}"


def listed(cargo_mutants, tree):
    """What cargo-mutants lists, with where each is to be woven in; and those that cannot be."""
    files = [file for pattern in CRATES.values() for file in expand(tree, pattern) if not LEFT_OUT.search(file)]
    spans = Spans(tree, files)
    command = [cargo_mutants, "mutants", "--list", "--json", "--no-config", "--workspace", "--dir", str(tree)]
    for file in files:
        command += ["--file", file]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found, seen = [], {}
    for entry in json.loads(shown):
        mutant = spans.place(entry)
        if mutant is None:
            continue
        mutant.nth = seen.get(mutant.key, 0)
        seen[mutant.key] = mutant.nth + 1
        found.append(mutant)
    return found


def expand(tree, pattern):
    braces = re.fullmatch(r"(.*)\{(.*)\}(.*)", pattern)
    patterns = [braces[1] + word + braces[3] for word in braces[2].split(",")] if braces else [pattern]
    return sorted(str(path.relative_to(tree)) for pattern in patterns for path in tree.glob(pattern))


def sample(mutants, seed):
    """In an order that depends on the seed and on what the mutants change, and on nothing else."""
    mutants = sorted(mutants, key=lambda mutant: (mutant.crate, mutant.key))
    random.Random(seed).shuffle(mutants)
    return mutants


def flat(text):
    return " ".join(text.split())


class Spans:
    """Where expressions, arms and functions begin and end."""

    def __init__(self, tree, files):
        manifest = HERE / "spans" / "Cargo.toml"
        target = tree.parent / "spans"
        build = ["cargo", "build", "-q", "--locked", "--manifest-path", str(manifest), "--target-dir", str(target)]
        subprocess.run(build, check=True)
        shown = subprocess.run(
            [str(target / "debug" / "leasehold-mutants-spans"), *files], cwd=tree, check=True, capture_output=True, text=True
        ).stdout
        self.text = {file: (tree / file).read_bytes() for file in files}
        self.operators, self.fields, self.arms, self.guards, self.bodies = {}, {}, {}, {}, {}
        file = None
        for line in shown.splitlines():
            word, *rest = line.split(" ")
            if word == "file":
                file = rest[0]
                continue
            numbers = [int(number) for number in rest]
            match word:
                case "binary" | "unary":
                    self.operators[file, numbers[0]] = (numbers[1], numbers[2])
                case "field":
                    self.fields[file, numbers[0]] = (numbers[1], numbers[2])
                case "arm":
                    self.arms[file, numbers[0]] = numbers
                    self.guards[file, numbers[3]] = (numbers[3], numbers[4])
                case "body":
                    self.bodies[file, numbers[0]] = numbers
        self.lines = {file: line_starts(text) for file, text in self.text.items()}

    def offset(self, file, place):
        """Columns count characters, from one."""
        start = self.lines[file][place["line"] - 1]
        line = self.text[file][start:].split(b"\n", 1)[0].decode()
        return start + len(line[: place["column"] - 1].encode())

    def body_of(self, file, at):
        """The innermost function around a place."""
        around = [numbers for (of, _), numbers in self.bodies.items() if of == file and numbers[0] <= at < numbers[1]]
        return min(around, key=lambda numbers: numbers[1] - numbers[0], default=None)

    def place(self, entry):
        file, genre = entry["file"], entry["genre"]
        function = entry["function"]
        if function is None or WORDS.search(function["return_type"]):
            return None
        text = self.text[file]
        start, end = (self.offset(file, entry["span"][side]) for side in ("start", "end"))
        cut = lambda start, end: text[start:end].decode()
        body = self.body_of(file, start)
        # A function has one type: where that has no name, nothing else can be answered beside it.
        if body is None or body[2] or genre == "FnValue" and "impl " in function["return_type"]:
            return None
        base = {
            "crate": file.split("/")[2] if "stores" in file else file.split("/")[1],
            "file": file,
            "function": re.sub(r"<impl (.*) for (.*)>", r"\2 as \1", function["function_name"]),
            "genre": genre,
        }
        after = entry["replacement"]
        match genre:
            case "BinaryOperator" | "UnaryOperator":
                if (file, start) not in self.operators:
                    return None
                first, last = self.operators[file, start]
                before = cut(first, last)
                changed = cut(first, start) + after + cut(end, last)
                return Mutant(**base, before=flat(before), after=flat(changed), kind="expression", start=first, end=last)
            case "MatchArmGuard":
                if (file, start) not in self.guards:
                    return None
                first, last = self.guards[file, start]
                before = cut(first, last)
                return Mutant(**base, before=flat(before), after=after, kind="expression", start=first, end=last)
            case "MatchArm":
                if (file, start) not in self.arms:
                    return None
                _, pattern_end, arrow, guard, guard_end = self.arms[file, start]
                before = flat(cut(start, arrow))
                place = {"kind": "guarded-arm", "start": guard, "end": guard_end} if guard else {
                    "kind": "arm", "start": pattern_end, "end": pattern_end}
                return Mutant(**base, before=before, after="no such arm", **place)
            case "FnValue":
                return Mutant(**base, before="body", after=flat(after), kind="body", start=body[0], end=body[1])
            case "StructField":
                if (file, start) not in self.fields:
                    return None
                first, last = self.fields[file, start]
                changed = cut(first, start) + re.sub(r"^\s*,", "", cut(end, last))
                before = flat(cut(start, end))
                return Mutant(**base, before=before, after=flat(changed), kind="expression", start=first, end=last)
        return None


def line_starts(text):
    starts = [0]
    for line in text.split(b"\n"):
        starts.append(starts[-1] + len(line) + 1)
    return starts


def stale(tree):
    """The classes whose text is no longer where it should be once, found without building anything."""
    astray = []
    for entry in tomllib.loads((HERE / "classes.toml").read_text())["class"]:
        path = tree / entry["file"]
        text = path.read_bytes() if path.is_file() else b""
        wordings = [entry["text"]] if isinstance(entry["text"], str) else entry["text"]
        found = [sum(len(weaving.occurrences(body, wording)) for body in bodies(text, entry["in"])) for wording in wordings]
        if next((times for times in found if times), 0) != 1:
            astray.append(f"class {entry['id']}: its text is not once in {entry['in']} of {entry['file']}")
    return astray


def bodies(text, function):
    """The bodies of the functions of this name, by their braces."""
    for found in re.finditer(rb"\bfn %s\b" % function.encode(), text):
        start = text.index(b"{", found.end())
        depth = 0
        for brace in re.finditer(rb"[{}]", text[start:]):
            depth += 1 if brace[0] == b"{" else -1
            if depth == 0:
                yield text[start : start + brace.end()]
                break


def classes(tree):
    """The classes of our own, and those whose text is no longer where it should be once."""
    found, astray = [], []
    wanted = tomllib.loads((HERE / "classes.toml").read_text())["class"]
    spans = Spans(tree, sorted({entry["file"] for entry in wanted if (tree / entry["file"]).exists()}))
    for entry in wanted:
        if entry["file"] not in spans.text:
            astray.append(f"class {entry['id']}: there is no {entry['file']}")
            continue
        file, text = entry["file"], spans.text[entry["file"]]
        bodies = [
            (start, end)
            for (of, start), (_, end, _) in spans.bodies.items()
            if of == file and re.match(rf"{entry['in']}\b", text[:start].decode().rsplit("fn ", 1)[-1])
        ]
        wordings = [entry["text"]] if isinstance(entry["text"], str) else entry["text"]
        places = []
        for wording in wordings:
            places = places or [
                (start + at, start + to) for start, end in bodies for at, to in weaving.occurrences(text[start:end], wording)
            ]
        if len(places) != 1:
            astray.append(f"class {entry['id']}: its text is {len(places)} times in {entry['in']} of {file}")
            continue
        start, end = places[0]
        if "expression" in entry:
            [(at, to)] = weaving.occurrences(text[start:end], entry["expression"])
            start, end = start + at, start + to
        before = text[start:end].decode()
        found.append(
            Mutant(
                crate="core",
                file=file,
                function=entry["in"],
                genre="Class",
                before=flat(before),
                after=flat(entry["replacement"]),
                kind=weaving.kind_of(before),
                start=start,
                end=end,
                name=entry["id"],
            )
        )
    return found, astray

