"""The house rules, as tests: doc lines, lengths, where `unsafe` may stand, what docs may name."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
import warnings
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = 100
FILE_LINES = 600  # a file of two nouns is cut between them, one of a single noun may be longer
FUNCTION_LINES = 70
ARCHITECTURE_LINES = 300

# The ratchet: what is longer than the rule allows, and how long it may be. Numbers only go down.
LONG_FUNCTIONS: dict[str, int] = {}

# P11: `unsafe` stands here alone; each folder and file with what it is that needs it.
UNSAFE = {
    "engine/base/src/process.rs": "whether the kernel has a process",
    "engine/base/src/user.rs": "the kernel's users",
    "engine/media/": "mapping, flushing, copying to media",
    "engine/space/src/lease": "what other processes read in a lease file",
    "engine/space/src/head.rs": "the words of a file's head, which every process changes",
    "engine/realm/src/fork.rs": "the state of a realm, held still across a fork",
    "engine/realm/src/process.rs": "signals, held back while a thread is begun",
    "engine/realm/src/view.rs": "a view's memory, mapped once more where the caller says",
    "engine/catalog/src/catalog/lmdb": "the LMDB wrapper",
    "engine/catalog/src/catalog/growth.rs": "the mapped growth page",
    "engine/records/src/chunked/work.rs": "a caller's buffer, filled by several threads",
    "cluster/driver/src/lock.rs": "a lock's descriptor, closed in forked children",
    "cluster/python/src/buffer.rs": "a caller's buffer, used while the interpreter is let go of",
    "cluster/python/src/engine.rs": "the address of the engine's table of functions",
    "cluster/parts/src/": "an engine that is reached by a table of C functions",
    "cluster/holding/src/": "the engine's side of that table",
    "python/src/descriptor.rs": "a descriptor that Python code holds",
    "python/src/view": "numpy arrays on the pool's memory",
    "capi/src/": "exported names, and what C gives and is given",
    "capi/edge/src/": "what C gives and is given",
    "cluster/c/src/": "exported names, as those of capi/src",
    "posix/preload/": "libc's own functions, as programs call them; memory shared by processes",
    "crash/src/": "a harness of tests: forks, signals, memory that outlives its writer",
    "cluster/wire/src/server/kernel.rs": "a signal, held back; what a socket has yet to send",
    "cluster/wire/examples/": "mapped memory, which a measurement fills",
    "bench/own/rust/src/bare.rs": "LMDB without a wrapper, to compare with",
    "bench/own/rust/src/counting.rs": "an allocator that counts its bytes",
}

# Names in the docs that look like files of this repository and are files of a pool or a user.
ON_MEDIA = {
    "pool.toml",
    ".pool.toml",
    "realm.toml",
    "namespace.toml",
    "creating.toml",
    "destroying.toml",
    "upgrading.toml",
}
# Parts of the package that use it as users do: nothing that the root imports leads to them.
PACKAGE = "python/engram"
USERS = tuple(f"{PACKAGE}/{part}/" for part in ("cli", "compat", "conventions", "demo", "web"))
DOCS = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs")
OTHER_SUFFIXES = (".c", ".h", ".hpp", ".cpp", ".f90", ".cmake")
CODE_SUFFIXES = {".rs", ".py", ".pyi", *OTHER_SUFFIXES}
UNFINISHED = (
    r"todo!\(|unimplemented!\(|NotImplemented[E]rror|FIXM[E]|\bXX[X]\b|mark[.]xfail|#\[ignor[e]"
)
ELSEWHERE = r"/wor[k]/|/hom[e]/\w|pypi[.]org|crates[.]io|registry[.]npmjs|deb[.]debian[.]org"


@cache
def tracked() -> tuple[str, ...]:
    """Every file of the repository, relative to its root."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return tuple(name for name in listed.stdout.splitlines() if (ROOT / name).is_file())


def sources(*suffixes: str) -> list[str]:
    """Return the tracked files with one of these suffixes."""
    return [name for name in tracked() if Path(name).suffix in suffixes]


@cache
def text(name: str) -> str:
    """Return a tracked file's text."""
    return (ROOT / name).read_text(encoding="utf-8")


def matches(pattern: str, names: list[str]) -> list[str]:
    """Where in the named files `pattern` is found: `file:line: text`."""
    found = re.compile(pattern)
    return [
        f"{name}:{number}: {line.strip()[:COLUMNS]}"
        for name in names
        for number, line in enumerate(text(name).splitlines(), 1)
        if found.search(line)
    ]


def shipped(name: str) -> str:
    """Give a Rust file's text without its tests, which stand last; a file of tests has none."""
    return "" if "/tests" in name else text(name).split("\n#[cfg(test)]\nmod tests {", 1)[0]


def rust_functions(source: str) -> Iterator[tuple[str, int]]:
    """Name and length of each function: rustfmt puts its last brace under its first letter."""
    lines = source.splitlines()
    head = re.compile(r"^( *)(?:pub(?:\([^)]*\))? )?(?:(?:const|unsafe|extern \"C\") )*fn (\w+)")
    for start, line in enumerate(lines):
        if (found := head.match(line)) and not line.rstrip().endswith((";", "}")):
            close = found[1] + "}"
            ends = (i for i in range(start, len(lines)) if lines[i] in (close, found[1] + ");"))
            yield found[2], next(ends, start) - start + 1


def rust_parameters(source: str) -> Iterator[tuple[str, str]]:
    """Name of each function with one of its parameters, however many lines its signature has."""
    source = re.sub(r"//[^\n]*", "", source)
    for found in re.finditer(r"\bfn (\w+)", source):
        depth, inside, given = 0, False, ""
        for before, sign in zip(source[found.end() - 1 :], source[found.end() :], strict=False):
            if inside and depth == 1 and sign in ",)":
                yield found[1], " ".join(given.split())
                given = ""
            elif inside:
                given += sign
            inside = inside or (depth == 0 and sign == "(")
            depth += (sign in "([{<") - (sign in ")]}" or (sign == ">" and before not in "-="))
            if depth == 0 and (inside or sign in "{;"):
                break


def python_functions(source: str) -> Iterator[tuple[str, int]]:
    """Name and length of each function."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def test_each_module_opens_with_a_doc_line() -> None:
    rust = [name for name in sources(".rs") if not text(name).startswith("//! ")]
    python = [name for name in sources(".py") if not text(name).startswith('"""')]
    assert not rust + python


def test_lines_fit() -> None:
    others = [n for n in sources(*OTHER_SUFFIXES) if n.startswith(("capi/", "tests/capi/"))]
    names = [*sources(".rs", ".py", ".pyi", ".toml"), *others, "Makefile"]
    assert not matches(rf"^(?!.*  # noqa|//! \|).{{{COLUMNS + 1},}}", names)


@pytest.mark.filterwarnings("default")  # shown, where pyproject.toml makes errors of warnings
def test_long_files_are_shown() -> None:
    for name in sources(".rs", ".py", ".pyi"):
        if (size := len(text(name).splitlines())) > FILE_LINES:
            warnings.warn(f"{name} has {size} lines: does it hold two nouns?", stacklevel=1)


def test_the_page_of_the_architecture_stays_one() -> None:
    assert len(text("ARCHITECTURE.md").splitlines()) <= ARCHITECTURE_LINES


def function_lengths() -> dict[str, int]:
    """Return how many lines each function has."""
    return {
        f"{name}:{function}": size
        for name in sources(".rs", ".py")
        for function, size in (
            rust_functions(text(name)) if name.endswith(".rs") else python_functions(text(name))
        )
    }


def test_functions_keep_to_the_ratchet() -> None:
    lengths = function_lengths()
    long = {n: s for n, s in lengths.items() if s > LONG_FUNCTIONS.get(n, FUNCTION_LINES)}
    assert not long


def test_the_ratchet_names_only_what_is_still_long() -> None:
    lengths = function_lengths()
    assert not [name for name in LONG_FUNCTIONS if lengths.get(name, 0) <= FUNCTION_LINES]


def test_no_parameter_takes_a_tuple_apart() -> None:
    """What has two names has two parameters, or a struct; a macro's `(a, b) in …` is neither."""
    folders = ("engine/", "capi/", "posix/", "cluster/", "python/src/", "crash/", "bench/", "fuzz/")
    names = [name for name in sources(".rs") if name.startswith(folders)]
    apart = re.compile(r"(?:#\[.*?\] ?)*&?\(.*?\) ?:(?!:)")
    parameters = [(name, *each) for name in names for each in rust_parameters(text(name))]
    assert len(parameters) > 5000
    assert not [each for each in parameters if apart.match(each[2])]


def test_unsafe_stands_only_where_it_may() -> None:
    elsewhere = [
        f"{name}: {line.strip()}"
        for name in sources(".rs")
        if not name.startswith(tuple(UNSAFE))
        for line in shipped(name).splitlines()
        if re.search(r"^(?!\s*//).*\bunsafe\b", line)
    ]
    assert not elsewhere


def test_each_unsafe_block_says_why_it_is_sound() -> None:
    silent = []
    for name in sources(".rs"):
        lines = shipped(name).splitlines()
        for place, line in enumerate(lines):
            if re.search(r"\bunsafe (\{|impl)", line) and not line.lstrip().startswith("//"):
                before = "\n".join(lines[max(place - 12, 0) : place])
                if "SAFETY:" not in before and "# Safety" not in before:
                    silent.append(f"{name}:{place + 1}")
    assert not silent


def own_modules() -> set[str]:
    """Return the modules right below the root that share their name with nothing public."""
    tree = ast.parse(text(f"{PACKAGE}/__init__.py"))
    public = {
        name
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        for name in ast.literal_eval(node.value)
    }
    files = [Path(name) for name in sources(".py") if name.startswith(f"{PACKAGE}/")]
    there = {Path(file.relative_to(PACKAGE).parts[0]).stem for file in files}
    return there - public | {"_engram"}


def taken_from_the_root(name: str, source: str) -> list[str]:
    """Return what a module of the package imports from the root but the natives and modules."""
    package = ["engram", *Path(name).relative_to(PACKAGE).parts[:-1]]
    modules, taken = own_modules(), []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names if not (each.asname and "." in each.name)]
            taken += [each for each in names if each.split(".")[0] == "engram"]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            if ".".join([*above, *([node.module] if node.module else [])]) == "engram":
                taken += [each.name for each in node.names if each.name not in modules]
    return taken


def test_the_package_takes_no_public_name_from_its_root() -> None:
    found = {
        name: taken
        for name in sources(".py")
        if name.startswith(f"{PACKAGE}/") and name != f"{PACKAGE}/__init__.py"
        if not name.startswith(USERS)
        if (taken := taken_from_the_root(name, text(name)))
    }
    assert not found


@pytest.mark.parametrize(
    ("source", "taken"),
    [
        ("from engram import Pool", ["Pool"]),
        ("from engram import _engram, later, size", []),
        ("from engram import verify", ["verify"]),  # the function, once the root is imported
        ("from engram import *", ["*"]),
        ("from .. import Pool, later", ["Pool"]),
        ("from . import fields", []),
        ("def late():\n    from engram import Pool", ["Pool"]),
        ("import engram", ["engram"]),
        ("import engram as root", ["engram"]),
        ("import engram.pool", ["engram.pool"]),
        ("import engram.pool as pools", []),
        ("from engram.pool import Pool", []),
    ],
)
def test_what_is_taken_from_the_root_is_found(source: str, taken: list[str]) -> None:
    assert taken_from_the_root(f"{PACKAGE}/active/fields.py", source) == taken


def test_rows_are_written_in_one_place() -> None:
    begins = re.compile(r"\.write\([Hh]eadroom\b")
    found = {
        name
        for name in sources(".rs")
        if name.startswith("engine/") and begins.search(shipped(name))
    }
    assert found == {
        "engine/realm/src/realm/commit.rs",
        "engine/catalog/src/catalog.rs",  # a closed catalog is marked as such
        "engine/catalog/src/catalog/fill.rs",  # a new catalog that nobody knows
        "engine/tools/src/rewrite/backup.rs",  # the writer lock alone, for one moment of several
        "engine/tools/src/verify/catalog.rs",  # the same
    }


PUT = (
    ("python/engram/group.py", "__setitem__", "put_array("),
    ("python/src/array.rs", "put_array", "put_plain("),
    ("python/src/array.rs", "put_plain", "engine.put("),
    ("engine/pool/src/namespace/handle.rs", "put", "realm.put("),
    ("engine/realm/src/realm/write.rs", "put", "link_object("),
    ("engine/realm/src/realm/write.rs", "link_object", "core.write("),
    ("engine/realm/src/realm/commit.rs", "write", "self.transact("),
    ("engine/realm/src/realm/commit.rs", "transact", "txn.commit()"),
    ("engine/catalog/src/catalog/txn.rs", "commit", "raw.commit()"),
)
"""The way of `group["T"] = x`, 256 bytes, to LMDB's commit: each function calls the next."""
PUT_HOPS, PUT_FILES = 9, 6


def body(name: str, function: str) -> str:
    """Return the text of a function: to its end, by the indentation of its first line."""
    lines = text(name).splitlines()
    head = re.compile(rf"^( *)(?:pub(?:\([^)]*\))? )?(?:fn|def) {function}\b")
    start, found = next((i, found) for i, line in enumerate(lines) if (found := head.match(line)))
    ends = re.compile(rf"^{found[1]}(?:\}}|def )")
    rest = range(start + 1, len(lines))
    return "\n".join(lines[start : next((i for i in rest if ends.match(lines[i])), len(lines))])


def test_a_put_is_a_few_hops_from_the_commit() -> None:
    for name, function, call in PUT:
        assert call in body(name, function), f"{function} of {name} does not call {call}"
    # What calls the native, and LMDB's own commit, are the ends of it.
    assert len(PUT) <= PUT_HOPS
    assert len({name for name, _, _ in PUT}) <= PUT_FILES
    walk = text("ARCHITECTURE.md").partition("## One put")[2].partition("\n## ")[0]
    missing = [name for name, function, _ in PUT if name not in walk or f"{function}`" not in walk]
    assert not missing


def test_nothing_names_a_machine_or_a_registry() -> None:
    names = [n for n in tracked() if not n.endswith(".lock")]
    texts = [name for name in names if Path(name).suffix in {*CODE_SUFFIXES, ".md", ".toml", ""}]
    assert not matches(ELSEWHERE, texts)


def test_nothing_is_left_unfinished() -> None:
    assert not matches(UNFINISHED, sources(".rs", ".py", *OTHER_SUFFIXES))


def quoted(document: str) -> list[str]:
    """Return what stands in backticks in a document, outside of its code blocks."""
    prose = re.sub(r"```.*?```", "", text(document), flags=re.DOTALL)
    return re.findall(r"`([^`\n]+)`", prose)


@pytest.mark.parametrize("document", [n for n in tracked() if n.endswith(".md")])
def test_each_path_named_in_the_docs_exists(document: str) -> None:
    if not document.startswith(DOCS):
        pytest.skip("not documentation")
    files = tracked()
    parts = [name.split("/")[:-1] for name in files]
    folders = {folder for part in parts for folder in accumulate(part, "{}/{}".format)}
    tops = {name.split("/")[0] for name in files}
    missing = []
    for name in quoted(document):
        if re.fullmatch(r"[\w./-]+\.(rs|py|pyi|md|toml)", name) and name not in ON_MEDIA:
            there = any(f"/{file}".endswith(f"/{name}") for file in files)
        elif re.fullmatch(r"[\w.-]+(/[\w.-]+)*/?", name) and "/" in name:
            first = name.split("/")[0]
            there = first not in tops or name.rstrip("/") in {*folders, *files}
        else:
            continue
        if not there:
            missing.append(name)
    assert not missing


@cache
def words_of_code() -> frozenset[str]:
    """Every word of every source file."""
    found: set[str] = set()
    for name in sources(*CODE_SUFFIXES):
        found.update(re.findall(r"\w+", text(name)))
    return frozenset(found)


@pytest.mark.parametrize("document", [n for n in tracked() if n.endswith(".md")])
def test_each_symbol_named_in_the_docs_exists(document: str) -> None:
    if not document.startswith(DOCS):
        pytest.skip("not documentation")
    words = words_of_code()
    missing = []
    for name in quoted(document):
        if re.fullmatch(r"\w+(::\w+)+(\(\))?", name) or re.fullmatch(r"test_\w+", name):
            missing += [part for part in re.findall(r"\w+", name) if part not in words]
    assert not missing


GLOSSARY = "docs/glossary.md"
# Words of a former dialect, with what stands in their place: `docs/glossary.md` has the new ones.
RETIRED = {
    "_?turn|Turn": "pool lock, publish lock",
    "bury\\w*|buried": "reap, undo_abandoned, mark_dead",
    "thin|thinned": "delete batch",
    "still|Still|check_still": "snapshot, same",
    "births?|BIRTHS|NO_BIRTH": "id prefix",
    "[Ee]xpects|expecting|check_expected": "precondition",
    "land|land_\\w+|landed|depart": "copy in, remove",
    "tend|tend_\\w+": "maintain",
    "mend|mending": "retry after recovery",
    "fresh": "retry if the view changed, new",
    "at_home": "in owning realm",
    "compaction_gate|CompactionGate": "compaction lock",
}
# Those that no comment has either, for they are not plain English there.
RETIRED_IN_COMMENTS = r"(?i)\b(?:mending|at_home|thinned|buried|bury\w*)\b"
# A word that stays, but not for this: a name of the shared counter.
WORD_FOR_COUNTER = re.compile(
    r"\b\w*word\w*: (?:Option<)?(?:Arc<|&)?SharedCounter\b|\bword_problem\b"
)


def glossary() -> dict[str, list[tuple[str, str]]]:
    """Give the sections of the glossary: each term, and what it says of it."""
    sections = re.split(r"^## ", text(GLOSSARY), flags=re.MULTILINE)[1:]
    entry = re.compile(r"^- \*\*(.+?)\*\*((?:.|\n  )+)", re.MULTILINE)
    return {section.split("\n", 1)[0]: entry.findall(section) for section in sections}


def test_the_glossary_has_each_word_once() -> None:
    sections = glossary()
    terms = [term for entries in sections.values() for term, _ in entries]
    bullets = sum(line.startswith("- ") for line in text(GLOSSARY).splitlines())
    assert len(terms) == len(set(terms)) == bullets
    unsorted = [
        name
        for name, entries in sections.items()
        if [term for term, _ in entries] != sorted((term for term, _ in entries), key=str.casefold)
    ]
    assert not unsorted
    types = set(
        re.findall(
            r"^\s*(?:pub(?:\([^)]*\))? )?(?:struct|enum|trait|type|union) (\w+)",
            "\n".join(
                text(name)
                for name in sources(".rs")
                if re.match(r"(engine|posix|cluster)/.*src/", name)
            ),
            flags=re.MULTILINE,
        )
    )
    named = [
        word
        for entries in sections.values()
        for _, says in entries
        for word in re.findall(r"`([A-Z]\w+)`", says)
    ]
    assert named
    assert not [word for word in named if word not in types]


def type_definitions(name: str) -> list[str]:
    """Name the types that a Rust file defines, but for the types that a trait asks for."""
    kinds = r"(?:struct|enum|trait|union) (\w+)|^(?:pub(?:\([^)]*\))? )?type (\w+)"
    visible = r"^ *(?:pub(?:\([^)]*\))? )?(?:unsafe )?"
    found = re.findall(rf"{visible}{kinds}", shipped(name), flags=re.MULTILINE)
    return [one or other for one, other in found]


def test_one_type_name_is_one_thing() -> None:
    places: dict[str, list[str]] = {}
    for name in sources(".rs"):
        if re.match(r"engine/(\w+/)?src/", name):
            for defined in type_definitions(name):
                places.setdefault(defined, []).append(name)
    assert len(places) > 300
    assert not {name: files for name, files in places.items() if len(files) > 1}


def rust_code(source: str) -> str:
    """Give Rust source without comments and strings: they are prose, and no identifiers."""
    prose = r"""//[^\n]*|/\*.*?\*/|'(?:\\[^\n]+?|[^\\'\n])'|\br(\#*)".*?"\1|"(?:\\.|[^"\\])*\""""
    return re.sub(prose, "", source, flags=re.DOTALL)


def python_names(source: str) -> Iterator[str]:
    """Name what Python source defines: functions, classes, variables, parameters, attributes."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case ast.arg():
                yield node.arg
            case ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)):
                yield name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name


def ours(name: str) -> bool:
    """Tell whether a file is of the engine, its doors, the package, or one of their tests."""
    return name.startswith(
        (
            "engine/",
            "capi/",
            "posix/",
            "cluster/",
            "python/src/",
            "python/engram/",
            "crash/",
            "tests/",
        )
    )


def test_retired_words_name_nothing() -> None:
    retired = re.compile(rf"\b(?:{'|'.join(RETIRED)})\b")
    rust = {name: rust_code(text(name)) for name in sources(".rs") if ours(name)}
    found = {f"{name}: {word}" for name, code in rust.items() for word in retired.findall(code)}
    found |= {name for name, code in rust.items() if WORD_FOR_COUNTER.search(code)}
    found |= {
        f"{name}: {word}"
        for name in sources(".py", ".pyi")
        if ours(name)
        for word in python_names(text(name))
        if retired.fullmatch(word)
    }
    assert not found


def test_comments_have_no_retired_jargon() -> None:
    names = [n for n in sources(".rs", ".py", ".pyi") if ours(n) and n != "tests/test_tidy.py"]
    assert not matches(RETIRED_IN_COMMENTS, names)


CRATES = [
    name
    for name in tracked()
    if re.fullmatch(r"(?:engine|posix|cluster)/(?!python)\w+/src/lib\.rs", name)
]


@pytest.mark.parametrize("name", CRATES)
def test_each_crate_says_what_it_owns_its_invariant_and_what_it_offers(name: str) -> None:
    page = "\n".join(re.findall(r"^//! ?(.*)", text(name), flags=re.MULTILINE))
    said = r"(?:[^\s.]+\s){4}"  # a sentence, not its beginning
    assert re.search(rf"^This crate owns {said}", page, flags=re.MULTILINE)
    assert re.search(rf"^\*Invariant\*: {said}", page, flags=re.MULTILINE)
    assert re.search(
        r"^\| (module|item) \| what it offers \|\n\|---\|---\|\n\| .+ \| .+ \|", page, re.MULTILINE
    )


def test_no_comma_ends_what_a_step_of_the_makefile_runs() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", "")
    given = []
    for call in text.split("$(call step,")[1:]:
        depth, commas = 1, 0
        for sign in call:
            depth += (sign == "(") - (sign == ")")
            if depth == 0:
                break
            commas += sign == "," and depth == 1
        given.append((commas, call[:40]))
    assert len(given) > 20
    assert [call for commas, call in given if commas != 1] == []


KNOW_POOLS = {"fill", "gather", "load", "many", "save", "stream", "worker"}
"""Modules of `formats` that bring what a file has into a pool, and out of it."""


def test_each_format_is_in_the_contracts() -> None:
    """A contract that lists modules would not see a new one."""
    folder = ROOT / "python/engram/formats"
    there = {path.stem for path in folder.iterdir() if path.stem not in {"__init__", "__pycache__"}}
    settings = tomllib.loads(text("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    (contract,) = [each for each in settings if each["id"] == "formats-know-no-pool"]
    listed = {name.rpartition(".")[2] for name in contract["source_modules"]}
    assert there == listed | KNOW_POOLS
    assert not listed & KNOW_POOLS


def test_what_lint_runs_needs_no_engine() -> None:
    program = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"engram", "h5py", "netCDF4", "duckdb"}:
            raise ModuleNotFoundError(f"lint does not install {name}")

sys.meta_path.insert(0, Missing())
import bench.sentences, bench.tables
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
