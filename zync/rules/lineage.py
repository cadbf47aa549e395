"""What the columns of a rule are made of: which fields of a connector's rows, by Spark's analysed plan.

A field that the connector left out is null in the views (`zync.debezium.unavailable`). What depends on it has to be
told apart: a column of the output that is made of such fields alone keeps its earlier value; where the row itself
depends on one (a filter, a key, an aggregate), or a column is made of it and of what may have changed, it cannot be
known.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from zync.spark.jvm import jvm_class

_CATALYST = "org.apache.spark.sql.catalyst"
IMAGES = ("row", "after", "before")
"""Columns of the views that hold a row's image."""
_NAME = "left_out"
WHOLE = "*"
"""Stands for all fields, where a whole image is used."""
_FIRST_SEGMENT = re.compile(
    r"""\$(?:\.(?P<plain>[^.\[]+)|\['(?P<single>[^']*)'\]|\["(?P<double>[^"]*)"\])(?P<rest>.*)""", re.DOTALL
)
_SAME_VALUE = frozenset({"Cast", "UpCast", "Alias", "KnownNullable", "KnownNotNull"})
_INSIDE = frozenset({"VariantGet", "GetStructField"})
_SUBQUERIES = frozenset(
    {"ScalarSubquery", "ListQuery", "Exists", "LateralSubquery", "FunctionTableSubqueryArgumentExpression"}
)
_EACH_ROW = frozenset(
    {
        "View",
        "SubqueryAlias",
        "Filter",
        "Sort",
        "Window",
        "Generate",
        "GlobalLimit",
        "LocalLimit",
        "Repartition",
        "RepartitionByExpression",
        "RebalancePartitions",
        "ResolvedHint",
    }
)
"""Nodes of a plan whose rows are each one of their child's, with its columns and maybe more."""


@dataclass(frozen=True)
class Uses:
    """What an expression is made of.

    fields: pairs of a view and the field of its rows; changing: whether also of what may have changed though the
    fields did not, like another view or the time; key: of the record's key; left_out: whether it looks at the view's
    column `left_out` itself.
    """

    fields: frozenset[tuple[str, str]] = frozenset()
    changing: bool = False
    key: bool = False
    left_out: bool = False

    def __or__(self, other: "Uses") -> "Uses":
        """What both are made of."""
        return Uses(
            self.fields | other.fields,
            self.changing or other.changing,
            self.key or other.key,
            self.left_out or other.left_out,
        )

    def of(self, view: str) -> frozenset[str]:
        """The fields of that view's rows."""
        return frozenset(name for its, name in self.fields if its == view)

    @property
    def views(self) -> frozenset[str]:
        """The views whose rows it is made of."""
        return frozenset(view for view, _ in self.fields)


CHANGING = Uses(changing=True)


@dataclass(frozen=True)
class _Path:
    """A column of a view, or what is inside of it."""

    view: str
    column: str
    segments: tuple[str, ...] = ()

    @property
    def field(self) -> str | None:
        """The field of the row, if it is one as a whole."""
        found = list(self.uses.fields)
        depth = 1 if self.column in IMAGES else 3 if self.segments[:1] == ("payload",) else 2
        return found[0][1] if found and found[0][1] != WHOLE and len(self.segments) == depth else None

    @property
    def uses(self) -> Uses:
        column, segments = self.column, self.segments
        if column == "value":  # the envelope, maybe in its converter's wrapping
            segments = segments[1:] if segments[:1] == ("payload",) else segments
            column, segments = (segments[0], segments[1:]) if segments else ("as it came", ())
        if column in IMAGES:
            return Uses(frozenset({(self.view, segments[0] if segments else WHOLE)}))
        if column == _NAME:
            return Uses(left_out=True)
        if column == "topic":
            return Uses()
        return Uses(key=True) if column == "key" else CHANGING


@dataclass(frozen=True)
class Lineage:
    """What a rule's rows are made of.

    columns: of each column of the rule. plain: those that are a field of a row as it is, and which. rows: what decides
    which rows there are. follows: whether each row is made of one record, whose `left_out` `take_along` brings to it.
    """

    columns: dict[str, Uses]
    plain: dict[str, str]
    rows: Uses
    follows: bool


def lineage(made: DataFrame, views: Collection[str]) -> Lineage:
    """The lineage of a DataFrame's rows, as far as they are made of rows of `views` (names in lower case)."""
    walk = _Walk(frozenset(views))
    plan = _analysed(made)
    follows = walk.visit(plan) == _FOLLOWED
    found = {one.name(): one for one in _items(plan.output())}
    paths = {name: walk.path(one) for name, one in found.items()}
    plain = {name: path.field for name, path in paths.items() if path and path.field}
    return Lineage({name: walk.of(one) for name, one in found.items()}, plain, walk.rows, follows)


def take_along(made: DataFrame, views: Collection[str], along: Sequence[str]) -> DataFrame:
    """The rows of `made`, whose lineage `follows`, and behind their columns those of the view's row that are named.

    Catalyst's own nodes, rebuilt from the view's leaf upwards: analysed plans keep their columns' ids.
    """
    spark = made.sparkSession
    plan = _analysed(made)
    project = jvm_class(spark, f"{_CATALYST}.plans.logical.Project")
    followed, columns = _Along(frozenset(views), tuple(along), project).through(plan)
    plan = project(reduce(_appended, columns, plan.output()), followed)
    dataset = jvm_class(spark, "org.apache.spark.sql.classic.Dataset").ofRows(spark._jsparkSession, plan)  # noqa: SLF001
    return ClassicDataFrame(dataset, spark)


def _appended(items: Any, item: Any) -> Any:
    return items.appended(item)


@dataclass(frozen=True)
class _Along:
    """Rebuilds a plan so that its rows have columns of the view's row that they are made of."""

    views: frozenset[str]
    names: tuple[str, ...]
    project: Any

    def through(self, plan: Any) -> tuple[Any, list[Any]]:
        """The plan, and those columns; the plan itself and none where it is not of the views."""
        if _view_of(plan, self.views):
            columns = {one.name().lower(): one for one in _items(plan.output())}
            return plan, [columns[one] for one in self.names]
        if (kind := _kind(plan)) not in (*_EACH_ROW, "Project", "Join"):
            return plan, []
        rebuilt = [self.through(child) for child in list(_items(plan.children()))[: _sides(plan)]]
        found = [(number, child, columns) for number, (child, columns) in enumerate(rebuilt) if columns]
        if len(found) != 1:
            return plan, []
        number, child, along = found[0]
        if kind == "Project":
            return self.project(reduce(_appended, along, plan.projectList()), child), along
        plan = plan.withNewChildren(plan.children().updated(number, child))
        columns = {_id(one): one for one in _items(plan.output())}  # anew: beyond an outer join they may be null
        return plan, [columns[_id(one)] for one in along]


_NOT_THERE, _FOLLOWED, _LOST = "not there", "followed", "lost"
"""Whether rows of a plan are of the views: not at all; each of one record of theirs; or somehow."""


def _sides(plan: Any) -> int:
    """How many of the plan's children have columns in its rows: a semi-join's right side has none."""
    half = _kind(plan) == "Join" and plan.joinType().toString() in ("LeftSemi", "LeftAnti")
    return 1 if half else int(plan.children().size())


@dataclass
class _Walk:
    """A walk over an analysed plan, from its leaves. `known`: what columns are made of, by their `exprId`.

    Where rows are `_LOST`, all fields that they are made of are in `rows`, and none is in `known`.
    """

    views: frozenset[str]
    known: dict[int, "_Path | Uses"] = field(default_factory=dict)
    rows: Uses = field(default_factory=Uses)

    def visit(self, plan: Any) -> str:
        """Notes what the plan's columns are made of."""
        kind = _kind(plan)
        if view := _view_of(plan, self.views):
            for one in _items(plan.output()):
                self.known[_id(one)] = _Path(view, one.name().lower())
            return _FOLLOWED
        children = list(_items(plan.children()))
        states = [self.visit(child) for child in children]
        if kind == "Project":
            for one in _items(plan.projectList()):
                if _kind(one) == "Alias":
                    self.known[_id(one)] = self.path(one) or self.of(one)
            return states[0]
        mine = reduce(Uses.__or__, map(self.of, _items(plan.expressions())), Uses())  # which adds to `rows` itself
        self.rows |= mine
        if kind in _EACH_ROW or (kind == "Join" and states.count(_FOLLOWED) <= 1):
            return next((one for one in (_FOLLOWED, _LOST) if one in states[: _sides(plan)]), _NOT_THERE)
        if set(states) <= {_NOT_THERE}:
            return _NOT_THERE
        self._end(children, named=kind == "Aggregate")
        return _LOST

    def _end(self, children: list[Any], *, named: bool) -> None:
        """Rows of several records become one, or zync does not know: all that goes in decides what comes out.

        `named`: the node names all columns that it takes, which are in `rows` already.
        """
        for one in (one for child in children for one in _items(child.output())):
            its = self.known.pop(_id(one), Uses())
            if not named:
                self.rows |= its if isinstance(its, Uses) else its.uses

    def path(self, expression: Any) -> _Path | None:
        """The path that the expression is, if it is nothing more."""
        kind = _kind(expression)
        if kind == "AttributeReference":
            known = self.known.get(_id(expression))
            return known if isinstance(known, _Path) else None
        if kind == "OuterReference":
            return self.path(expression.e())
        if kind not in _SAME_VALUE and kind not in _INSIDE:
            return None
        children = list(_items(expression.children()))
        inner = self.path(children[0])
        if inner is None or kind in _SAME_VALUE:
            return inner
        if kind == "GetStructField":
            return replace(inner, segments=(*inner.segments, str(expression.extractFieldName())))
        is_literal = _kind(children[1]) == "Literal"
        return replace(inner, segments=(*inner.segments, *_segments(str(children[1].value())))) if is_literal else None

    def of(self, expression: Any) -> Uses:
        """What the expression is made of."""
        if path := self.path(expression):
            return path.uses
        kind, children = _kind(expression), list(_items(expression.children()))
        if kind == "AttributeReference":
            known = self.known.get(_id(expression), CHANGING)
            return known if isinstance(known, Uses) else known.uses
        if kind == "OuterReference":
            return self.of(expression.e())
        if not children and kind not in ("Literal", "NamedLambdaVariable"):
            children_are = CHANGING
        else:
            children_are = reduce(Uses.__or__, map(self.of, children), Uses())
        if kind in _SUBQUERIES:
            inner = _Walk(self.views, dict(self.known))
            inner.visit(expression.plan())
            outputs = reduce(Uses.__or__, map(inner.of, _items(expression.plan().output())), Uses())
            self.rows |= inner.rows | outputs  # of which records its rows are is not followed
            return children_are | CHANGING
        return children_are


def _segments(path: str) -> tuple[str, ...]:
    """The names at the beginning of a VARIANT path like `$.after['a b'].c[0]`."""
    found: list[str] = []
    while match := _FIRST_SEGMENT.fullmatch(path):
        found.append(next(one for one in match.group("plain", "single", "double") if one is not None))
        path = f"${match['rest']}"
    return (*found, path) if path != "$" else tuple(found)  # what is left is an element of an array


def _analysed(made: Any) -> Any:
    """The analysed plan of a DataFrame, with what WITH names in each place where it is used."""
    plan = made._jdf.queryExecution().analyzed()  # noqa: SLF001
    return jvm_class(made.sparkSession, f"{_CATALYST}.optimizer.InlineCTE")(True, False).apply(plan)  # noqa: FBT003


def _items(found: Any) -> Iterator[Any]:
    return (found.apply(number) for number in range(found.size()))


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _id(attribute: Any) -> int:
    return int(attribute.exprId().id())


def _view_of(plan: Any, views: Collection[str]) -> str | None:
    if _kind(plan) != "View":
        return None
    found = str(plan.desc().identifier().table()).lower()
    return found if found in views else None
