"""Which line reads each setting, found in the sources: `python -m tests.support.setting_readers` prints the list.

A setting counts as read where code outside `settings/` reads its field from a group of settings. One that `settings/`
hands on, into a policy, into options or through a function, counts as read where that is read outside. What only
compares settings with each other is no reader.

The types of expressions are followed as far as annotations say them, so that a field of the same name in some other
class is not taken for the setting's.
"""

import ast
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from herdsman.settings.model import CATALOGUE, groups

SOURCES = Path(__file__).resolve().parents[2] / "src" / "herdsman"

BUILT_FROM_OPTIONS = {"local.py": "LocalOptions", "runpod.py": "RunpodOptions"}
"""Providers are opened with a mapping of options, for they are found by name: the class that is built from it."""

Field = tuple[str, str]
"""A class, and the name of a field or property of it."""
Env = dict[str, ast.expr | None]


@dataclass(slots=True)
class Reads:
    of_field: dict[Field, list[str]] = field(default_factory=lambda: defaultdict[Field, list[str]](list))
    """Where code outside `settings/` reads a field."""
    of_function: dict[str, list[str]] = field(default_factory=lambda: defaultdict[str, list[str]](list))
    """Where code outside `settings/` calls a function of `settings/`."""
    handed_on: dict[Field, set[Field | str]] = field(default_factory=lambda: defaultdict[Field, set[Field | str]](set))
    """What `settings/` makes of a field: a field of another class, or what a function of its own answers."""
    calls: dict[str, set[Field | str]] = field(default_factory=lambda: defaultdict[str, set[Field | str]](set))
    """The same for the answer of a function of `settings/`."""


def readers() -> Mapping[str, str | None]:
    """For each setting a line that reads it; None where there is none."""
    reads = Code(SOURCES).reads()
    kinds = {name: kind.__name__ for name, kind in groups().items()}
    return {each.name: reader((kinds[each.group], each.key), reads) for each in CATALOGUE.values()}


def reader(setting: Field, reads: Reads) -> str | None:
    found: list[str] = []
    seen: set[Field | str] = set()
    ahead: list[Field | str] = [setting]
    while ahead:
        each = ahead.pop()
        if each in seen:
            continue
        seen.add(each)
        if isinstance(each, str):
            found += reads.of_function.get(each, ())
            ahead += reads.calls.get(each, ())
        else:
            found += reads.of_field.get(each, ())
            ahead += reads.handed_on.get(each, ())
    return min(found, key=lambda line: ("/cli/" in line, line), default=None)


class Code:
    """The sources with the annotations that they have."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._modules = {path: ast.parse(path.read_text()) for path in sorted(root.rglob("*.py"))}
        self._classes: dict[str, dict[str, ast.expr | None]] = defaultdict(dict)
        self._bases: dict[str, list[str]] = defaultdict(list)
        self._functions: dict[str, ast.expr | None] = {}
        self._imported: dict[Path, dict[str, str]] = {}
        self._exported: dict[str, str] = {}
        self._reads = Reads()
        for path, module in self._modules.items():
            dotted = self.dotted(path)
            imported = self._imported.setdefault(path, {})
            for node in ast.walk(module):
                if isinstance(node, ast.ClassDef):
                    self._learn(node)
                elif isinstance(node, ast.FunctionDef):
                    self._functions.setdefault(f"{dotted}.{node.name}", node.returns)
                elif isinstance(node, ast.ImportFrom):
                    imported |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}

            self._exported |= {f"{dotted}.{name}": whole for name, whole in imported.items()}

    def _learn(self, node: ast.ClassDef) -> None:
        known = self._classes[node.name]
        self._bases[node.name] += [each for base in node.bases for each in _names(base)]
        for each in ast.walk(node):
            if isinstance(each, ast.AnnAssign):
                if isinstance(each.target, ast.Name):
                    known[each.target.id] = each.annotation
                elif isinstance(each.target, ast.Attribute):
                    known[each.target.attr] = each.annotation
            elif isinstance(each, ast.FunctionDef):
                known.setdefault(each.name, each.returns)
                given = {one.arg: one.annotation for one in _arguments(each)}
                for target, value in _assigned(each):
                    if isinstance(target, ast.Attribute) and isinstance(value, ast.Name):
                        known.setdefault(target.attr, given.get(value.id))

    def reads(self) -> Reads:
        for path, module in self._modules.items():
            inside = path.relative_to(self._root).parts[0] == "settings"
            _Reading(self, path, inside=inside).body(module.body, {}, None)
        return self._reads

    def found(self, path: Path, node: ast.AST) -> str:
        return f"{path.relative_to(self._root.parent.parent)}:{getattr(node, 'lineno', 0)}"

    @property
    def result(self) -> Reads:
        return self._reads

    def is_class(self, name: str) -> bool:
        return name in self._classes

    def dotted(self, path: Path) -> str:
        parts = path.relative_to(self._root.parent).with_suffix("").parts
        return ".".join(part for part in parts if part != "__init__")

    def function(self, path: Path, name: str) -> str | None:
        """The whole name of a function that the module calls by this one; None where it is not of ours."""
        whole = self._imported[path].get(name, f"{self.dotted(path)}.{name}")
        while whole not in self._functions and whole in self._exported:
            whole = self._exported[whole]
        return whole if whole in self._functions else None

    def answer(self, path: Path, name: str) -> ast.expr | None:
        return self._functions.get(self.function(path, name) or "")

    def owner(self, kind: str, attribute: str) -> Iterator[tuple[str, ast.expr | None]]:
        """The class that has the attribute, and what it is; a base of `kind` may be it."""
        ahead, seen = [kind], set[str]()
        while ahead:
            name = ahead.pop()
            if name in seen or name not in self._classes:
                continue
            seen.add(name)
            if attribute in self._classes[name]:
                yield name, self._classes[name][attribute]
            ahead += self._bases[name]


class _Reading:
    """One module, function by function, with the types of what is at hand."""

    def __init__(self, code: Code, path: Path, *, inside: bool) -> None:
        self._code, self._path, self._inside = code, path, inside

    def body(self, statements: list[ast.stmt], env: Env, function: str | None) -> None:
        for each in statements:
            self._statement(each, env, function)

    def _statement(self, node: ast.stmt, env: Env, function: str | None, kind: str | None = None) -> None:
        match node:
            case ast.ClassDef():
                for each in node.body:
                    self._statement(each, env, function, node.name)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                inner = {**env, **{each.arg: each.annotation for each in _arguments(node)}}
                if kind is not None and node.args.args:
                    inner[node.args.args[0].arg] = ast.Name(kind)
                self._bind(node, inner)
                self._expressions(node, inner, f"{kind}.{node.name}" if kind else node.name)
            case _:
                self._bind(node, env)
                self._expressions(node, env, function)

    def _bind(self, root: ast.AST, env: Env) -> None:
        """Local names, in the order of the text; the last word on one is taken, which suffices here."""
        for node in ast.walk(root):
            match node:
                case ast.FunctionDef() | ast.Lambda() if node is not root:
                    for each in _arguments(node):
                        env.setdefault(each.arg, each.annotation)
                case ast.AnnAssign(target=ast.Name(name)):
                    env[name] = node.annotation
                case ast.Assign() | ast.NamedExpr():
                    for target, value in _assigned(node):
                        self._name(target, self._type(value, env), env)
                case ast.For() | ast.comprehension():
                    self._name(node.target, self._element(node.iter, env), env)
                case ast.withitem(optional_vars=ast.expr() as target):
                    self._name(target, self._type(node.context_expr, env), env)
                case ast.MatchAs(name=str(name)):
                    env.setdefault(name, None)
                case _:
                    pass

    def _name(self, target: ast.expr, kind: ast.expr | None, env: Env) -> None:
        if isinstance(target, ast.Name) and kind is not None:
            env[target.id] = kind
        elif isinstance(target, ast.Tuple) and isinstance(kind, ast.Subscript):
            parts = kind.slice.elts if isinstance(kind.slice, ast.Tuple) else [kind.slice]
            for each, part in zip(target.elts, parts, strict=False):
                self._name(each, part, env)

    def _type(self, node: ast.expr, env: Env) -> ast.expr | None:
        match node:
            case ast.Name(name):
                return env.get(name)
            case ast.Attribute():
                return next((kind for _, kind in self._owners(node, env)), None)
            case ast.Call():
                return self._answer(node, env)
            case ast.Subscript(value=value):
                pair = _pair(self._type(value, env))
                return self._element(value, env) if pair is None else pair.elts[-1]
            case ast.BoolOp(values=[first, *_]) | ast.Await(value=first):
                return self._type(first, env)
            case ast.IfExp():
                return self._type(node.body, env) or self._type(node.orelse, env)
            case ast.Tuple():
                parts = [self._type(each, env) or ast.Name("object") for each in node.elts]
                return ast.Subscript(ast.Name("tuple"), ast.Tuple(parts))
            case _:
                return None

    def _answer(self, node: ast.Call, env: Env) -> ast.expr | None:
        match node.func:
            case ast.Name("replace") if node.args:
                return self._type(node.args[0], env)
            case ast.Name(name):
                return ast.Name(name) if self._code.is_class(name) else self._code.answer(self._path, name)
            case ast.Attribute(value=value, attr=verb):
                pair = _pair(self._type(value, env))
                if pair is not None and verb in _OF_MAPPINGS:
                    return _OF_MAPPINGS[verb](pair)
                return next((kind for _, kind in self._owners(node.func, env)), None)
            case _:
                return None

    def _element(self, node: ast.expr, env: Env) -> ast.expr | None:
        kind = self._type(node, env)
        for each in _union(kind):
            if isinstance(each, ast.Subscript):
                parts = each.slice.elts if isinstance(each.slice, ast.Tuple) else [each.slice]
                return parts[0] if parts else None
        return None

    def _owners(self, node: ast.Attribute, env: Env) -> Iterator[tuple[str, ast.expr | None]]:
        for name in _names(self._type(node.value, env)):
            yield from self._code.owner(name, node.attr)

    def _expressions(self, root: ast.AST, env: Env, function: str | None) -> None:
        parents = {child: node for node in ast.walk(root) for child in ast.iter_child_nodes(node)}
        for node in ast.walk(root):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                for kind, _ in self._owners(node, env):
                    self._read((kind, node.attr), node, root, parents, function)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                name = self._code.function(self._path, node.func.id)
                if name is not None and self._inside:
                    self._code.result.calls[name] |= self._becomes(node, root, parents, function)
                elif name is not None:
                    self._code.result.of_function[name].append(self._code.found(self._path, node))

    def _read(
        self,
        what: Field,
        node: ast.expr,
        root: ast.AST,
        parents: Mapping[ast.AST, ast.AST],
        function: str | None,
    ) -> None:
        if self._inside:
            self._code.result.handed_on[what] |= self._becomes(node, root, parents, function)
        else:
            self._code.result.of_field[what].append(self._code.found(self._path, node))

    def _becomes(
        self,
        node: ast.AST,
        root: ast.AST,
        parents: Mapping[ast.AST, ast.AST],
        function: str | None,
        seen: frozenset[str] = frozenset(),
    ) -> set[Field | str]:
        """Where the value goes: a field of what is built with it, an option, a local name, or the function's answer."""
        found: set[Field | str] = set()
        child = node
        while child in parents:
            above = parents[child]
            match above:
                case ast.keyword(arg=str(name)) if isinstance(call := parents[above], ast.Call):
                    built = call.func.id if isinstance(call.func, ast.Name) else ""
                    if self._code.is_class(built):
                        return set() if built == "Relation" else {(built, name)}
                case ast.Dict() if child in above.values:
                    key = next(key for key, value in zip(above.keys, above.values, strict=True) if value is child)
                    built = BUILT_FROM_OPTIONS.get(self._path.name)
                    if isinstance(key, ast.Constant) and built is not None:
                        return {(built, str(key.value))}
                case ast.Assign():
                    for target in above.targets:
                        for name in _targets(target, above.value, child):
                            if name not in seen:
                                found |= self._uses(name, root, parents, function, seen | {name})
                    return found
                case _:
                    pass
            child = above
        if function is None:
            return found
        kind, _, name = function.rpartition(".")
        return found | {(kind, name) if kind else f"{self._code.dotted(self._path)}.{name}"}

    def _uses(
        self,
        name: str,
        root: ast.AST,
        parents: Mapping[ast.AST, ast.AST],
        function: str | None,
        seen: frozenset[str],
    ) -> set[Field | str]:
        found: set[Field | str] = set()
        for node in ast.walk(root):
            if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
                found |= self._becomes(node, root, parents, function, seen)
        return found


def _assigned(root: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Each target of an assignment with its value, those of tuples one by one."""
    for node in ast.walk(root):
        if isinstance(node, ast.NamedExpr):
            yield node.target, node.value
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    yield from zip(target.elts, node.value.elts, strict=False)
                else:
                    yield target, node.value


def _targets(target: ast.expr, value: ast.expr, child: ast.AST) -> Iterator[str]:
    """The local names that `child` of the value gets."""
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, ast.Tuple):
        of = value.elts if isinstance(value, ast.Tuple) else None
        for index, each in enumerate(target.elts):
            if isinstance(each, ast.Name) and (of is None or child is value or of[index] is child):
                yield each.id


def _arguments(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> list[ast.arg]:
    return [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]


def _union(kind: ast.expr | None) -> Iterator[ast.expr]:
    match kind:
        case ast.BinOp(left=left, right=right):
            yield from _union(left)
            yield from _union(right)
        case ast.Constant(value=str(text)):
            yield from _union(ast.parse(text, mode="eval").body)
        case ast.Subscript(value=ast.Name("Annotated"), slice=ast.Tuple(elts=[first, *_])):
            yield from _union(first)
        case ast.Subscript(value=ast.Name("Callable"), slice=ast.Tuple(elts=[*_, answer])):
            yield from _union(answer)
        case ast.expr():
            yield kind
        case _:
            pass


def _names(kind: ast.expr | None) -> set[str]:
    found = set[str]()
    for each in _union(kind):
        if isinstance(each, ast.Name):
            found.add(each.id)
        elif isinstance(each, ast.Attribute):
            found.add(each.attr)
    return found


def _pair(kind: ast.expr | None) -> ast.Tuple | None:
    """Of what kind the keys and the values of a mapping are."""
    match kind:
        case ast.Subscript(value=ast.Name("Mapping" | "dict"), slice=ast.Tuple() as pair):
            return pair
        case _:
            return None


def _many(kind: ast.expr) -> ast.expr:
    return ast.Subscript(ast.Name("Iterable"), kind)


_OF_MAPPINGS: Mapping[str, Callable[[ast.Tuple], ast.expr]] = {
    "get": lambda pair: pair.elts[-1],
    "values": lambda pair: _many(pair.elts[-1]),
    "items": lambda pair: _many(ast.Subscript(ast.Name("tuple"), pair)),
}


def main() -> None:
    for name, line in readers().items():
        print(f"{name:40} {line or 'read by nothing'}")


if __name__ == "__main__":
    main()
