"""Column lineage: finds, in Spark's analysed plan, the source fields that each column of a rule is computed from.

A field that the connector left out is null in the views (`zync.debezium.unavailable`). A column of the output that is
made of such fields alone keeps its earlier value. If the row itself depends on such a field (by a filter, a key or an
aggregate), or a column is made of it and of something that may have changed, the row cannot be known.
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
"""Columns of the views that hold an image of the source row."""
_LEFT_OUT_COLUMN = "left_out"
WHOLE = "*"
"""Stands for all fields of an image, where the whole image is used."""
_FIRST_SEGMENT = re.compile(
    r"""\$(?:\.(?P<plain>[^.\[]+)|\['(?P<single>[^']*)'\]|\["(?P<double>[^"]*)"\])(?P<rest>.*)""", re.DOTALL
)
_KEEPS_VALUE = frozenset({"Cast", "UpCast", "Alias", "KnownNullable", "KnownNotNull"})
_EXTRACTIONS = frozenset({"VariantGet", "GetStructField"})
_SUBQUERIES = frozenset(
    {"ScalarSubquery", "ListQuery", "Exists", "LateralSubquery", "FunctionTableSubqueryArgumentExpression"}
)
_ROW_PRESERVING = frozenset(
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
"""Plan nodes that make each of their rows of a single row of their child, with its columns and maybe more."""


@dataclass(frozen=True)
class Uses:
    """The inputs of an expression.

    Attributes:
        fields: Pairs of a view and a field of its rows.
        changing: Whether it also uses something that may change while the fields do not: another view, or the time.
        key: Whether it uses the record's key.
        left_out: Whether it reads the view's column `left_out` itself.
    """

    fields: frozenset[tuple[str, str]] = frozenset()
    changing: bool = False
    key: bool = False
    left_out: bool = False

    def __or__(self, other: "Uses") -> "Uses":
        """Returns the inputs of both."""
        return Uses(
            self.fields | other.fields,
            self.changing or other.changing,
            self.key or other.key,
            self.left_out or other.left_out,
        )

    def of(self, view: str) -> frozenset[str]:
        """Returns the fields of that view's rows."""
        return frozenset(name for field_view, name in self.fields if field_view == view)

    @property
    def views(self) -> frozenset[str]:
        """The views whose fields are used."""
        return frozenset(view for view, _ in self.fields)


CHANGING = Uses(changing=True)


@dataclass(frozen=True)
class _Path:
    """A column of a view, or a value nested in it, by the names of the fields that lead there."""

    view: str
    column: str
    segments: tuple[str, ...] = ()

    @property
    def field(self) -> str | None:
        """The field of the source row that the path names; None if it names more or less than a whole field."""
        fields = list(self.uses.fields)
        depth = 1 if self.column in IMAGES else 3 if self.segments[:1] == ("payload",) else 2
        return fields[0][1] if fields and fields[0][1] != WHOLE and len(self.segments) == depth else None

    @property
    def uses(self) -> Uses:
        """The inputs that the path stands for."""
        column, segments = self.column, self.segments
        if column == "value":  # the envelope, perhaps inside the JSON converter's schema and payload
            segments = segments[1:] if segments[:1] == ("payload",) else segments
            column, segments = (segments[0], segments[1:]) if segments else ("as it came", ())
        if column in IMAGES:
            return Uses(frozenset({(self.view, segments[0] if segments else WHOLE)}))
        if column == _LEFT_OUT_COLUMN:
            return Uses(left_out=True)
        if column == "topic":
            return Uses()
        return Uses(key=True) if column == "key" else CHANGING


@dataclass(frozen=True)
class Lineage:
    """The inputs of a rule's rows.

    Attributes:
        columns: The inputs of each column.
        plain: The columns that are a field of the source row as it is, with the field's name.
        rows: The inputs that decide which rows the result has.
        follows: Whether each row is made of a single record, so that `take_along` can add that record's columns.
    """

    columns: dict[str, Uses]
    plain: dict[str, str]
    rows: Uses
    follows: bool


def lineage(result: DataFrame, views: Collection[str]) -> Lineage:
    """Returns the lineage of a rule's result.

    Args:
        result: The rule's result.
        views: The views whose fields are followed, in lower case.
    """
    walk = _LineageWalk(frozenset(views))
    plan = _analysed(result)
    follows = walk.visit(plan) == _FOLLOWED
    attributes = {attribute.name(): attribute for attribute in _items(plan.output())}
    paths = {name: walk.path(attribute) for name, attribute in attributes.items()}
    plain = {name: path.field for name, path in paths.items() if path and path.field}
    return Lineage({name: walk.of(attribute) for name, attribute in attributes.items()}, plain, walk.rows, follows)


def take_along(result: DataFrame, views: Collection[str], along: Sequence[str]) -> DataFrame:
    """Adds columns of the view's row to the rows that a rule made of it.

    Rebuilds Catalyst's nodes from the view's leaf upwards, which is possible because analysed plans refer to columns
    by ids that stay the same.

    Args:
        result: The rule's result, whose lineage `follows`.
        views: The views, in lower case.
        along: The names of the columns to add, behind those of `result`.
    """
    spark = result.sparkSession
    plan = _analysed(result)
    project = jvm_class(spark, f"{_CATALYST}.plans.logical.Project")
    rebuilt, columns = _PlanRebuilder(frozenset(views), tuple(along), project).rebuild(plan)
    plan = project(reduce(_appended, columns, plan.output()), rebuilt)
    dataset = jvm_class(spark, "org.apache.spark.sql.classic.Dataset").ofRows(spark._jsparkSession, plan)  # noqa: SLF001
    return ClassicDataFrame(dataset, spark)


def _appended(items: Any, item: Any) -> Any:
    return items.appended(item)


@dataclass(frozen=True)
class _PlanRebuilder:
    """Rebuilds a plan so that its rows have further columns of the view's row that they are made of."""

    views: frozenset[str]
    names: tuple[str, ...]
    project: Any

    def rebuild(self, plan: Any) -> tuple[Any, list[Any]]:
        """Returns the new plan and the added columns; the plan itself and no columns if it does not read the views."""
        if _view_of(plan, self.views):
            columns = {attribute.name().lower(): attribute for attribute in _items(plan.output())}
            return plan, [columns[name] for name in self.names]
        if (kind := _kind(plan)) not in (*_ROW_PRESERVING, "Project", "Join"):
            return plan, []
        rebuilt = [self.rebuild(child) for child in list(_items(plan.children()))[: _output_sides(plan)]]
        with_columns = [(number, child, columns) for number, (child, columns) in enumerate(rebuilt) if columns]
        if len(with_columns) != 1:
            return plan, []
        number, child, along = with_columns[0]
        if kind == "Project":
            return self.project(reduce(_appended, along, plan.projectList()), child), along
        plan = plan.withNewChildren(plan.children().updated(number, child))
        # From the new plan, because above an outer join the same columns are nullable.
        columns = {_id(attribute): attribute for attribute in _items(plan.output())}
        return plan, [columns[_id(attribute)] for attribute in along]


_UNRELATED, _FOLLOWED, _LOST = "not there", "followed", "lost"
"""How a plan's rows come from the views: not at all; each of a single record; or in a way that zync does not follow."""


def _output_sides(plan: Any) -> int:
    """Returns the number of the plan's children that contribute columns: a semi-join's right side does not."""
    half = _kind(plan) == "Join" and plan.joinType().toString() in ("LeftSemi", "LeftAnti")
    return 1 if half else int(plan.children().size())


@dataclass
class _LineageWalk:
    """A walk over an analysed plan, from its leaves upwards.

    Attributes:
        views: The views whose fields are followed, in lower case.
        known: The inputs of each column seen so far, by its `exprId`.
        rows: The inputs that decide which rows the plan has. Where rows are `_LOST`, all fields that they are made of
            are here, and none is in `known`.
    """

    views: frozenset[str]
    known: dict[int, "_Path | Uses"] = field(default_factory=dict)
    rows: Uses = field(default_factory=Uses)

    def visit(self, plan: Any) -> str:
        """Records the inputs of the plan's columns; returns how its rows come from the views."""
        kind = _kind(plan)
        if view := _view_of(plan, self.views):
            for attribute in _items(plan.output()):
                self.known[_id(attribute)] = _Path(view, attribute.name().lower())
            return _FOLLOWED
        children = list(_items(plan.children()))
        states = [self.visit(child) for child in children]
        if kind == "Project":
            for expression in _items(plan.projectList()):
                if _kind(expression) == "Alias":
                    self.known[_id(expression)] = self.path(expression) or self.of(expression)
            return states[0]
        node_uses = reduce(Uses.__or__, map(self.of, _items(plan.expressions())), Uses())  # `of` may extend `rows`
        self.rows |= node_uses
        if kind in _ROW_PRESERVING or (kind == "Join" and states.count(_FOLLOWED) <= 1):
            side_states = states[: _output_sides(plan)]
            return next((state for state in (_FOLLOWED, _LOST) if state in side_states), _UNRELATED)
        if set(states) <= {_UNRELATED}:
            return _UNRELATED
        self._lose(children, named=kind == "Aggregate")
        return _LOST

    def _lose(self, children: list[Any], *, named: bool) -> None:
        """Stops following the children's columns: the node combines several records, or zync does not know it.

        All that goes into such a node decides which rows come out.

        Args:
            children: The node's children.
            named: Whether the node names all columns that it uses, so that they are in `rows` already.
        """
        for attribute in (attribute for child in children for attribute in _items(child.output())):
            uses = self.known.pop(_id(attribute), Uses())
            if not named:
                self.rows |= uses if isinstance(uses, Uses) else uses.uses

    def path(self, expression: Any) -> _Path | None:
        """Returns the path that the expression stands for; None if it is more than a path."""
        kind = _kind(expression)
        if kind == "AttributeReference":
            known = self.known.get(_id(expression))
            return known if isinstance(known, _Path) else None
        if kind == "OuterReference":
            return self.path(expression.e())
        if kind not in _KEEPS_VALUE and kind not in _EXTRACTIONS:
            return None
        children = list(_items(expression.children()))
        inner = self.path(children[0])
        if inner is None or kind in _KEEPS_VALUE:
            return inner
        if kind == "GetStructField":
            return replace(inner, segments=(*inner.segments, str(expression.extractFieldName())))
        is_literal = _kind(children[1]) == "Literal"
        return replace(inner, segments=(*inner.segments, *_segments(str(children[1].value())))) if is_literal else None

    def of(self, expression: Any) -> Uses:
        """Returns the inputs of the expression."""
        if path := self.path(expression):
            return path.uses
        kind, children = _kind(expression), list(_items(expression.children()))
        if kind == "AttributeReference":
            known = self.known.get(_id(expression), CHANGING)
            return known if isinstance(known, Uses) else known.uses
        if kind == "OuterReference":
            return self.of(expression.e())
        if not children and kind not in ("Literal", "NamedLambdaVariable"):
            child_uses = CHANGING
        else:
            child_uses = reduce(Uses.__or__, map(self.of, children), Uses())
        if kind in _SUBQUERIES:
            inner = _LineageWalk(self.views, dict(self.known))
            inner.visit(expression.plan())
            outputs = reduce(Uses.__or__, map(inner.of, _items(expression.plan().output())), Uses())
            self.rows |= inner.rows | outputs  # zync does not follow which records a subquery's rows come from
            return child_uses | CHANGING
        return child_uses


def _segments(path: str) -> tuple[str, ...]:
    """Splits a VARIANT path like `$.after['a b'].c[0]` into the names at its beginning and the rest, if any."""
    segments: list[str] = []
    while match := _FIRST_SEGMENT.fullmatch(path):
        segments.append(next(name for name in match.group("plain", "single", "double") if name is not None))
        path = f"${match['rest']}"
    return (*segments, path) if path != "$" else tuple(segments)  # the rest is an element of an array


def _analysed(result: Any) -> Any:
    """Returns the analysed plan of a DataFrame with its CTEs inlined."""
    plan = result._jdf.queryExecution().analyzed()  # noqa: SLF001
    return jvm_class(result.sparkSession, f"{_CATALYST}.optimizer.InlineCTE")(True, False).apply(plan)  # noqa: FBT003


def _items(sequence: Any) -> Iterator[Any]:
    """Returns the items of a Scala sequence."""
    return (sequence.apply(number) for number in range(sequence.size()))


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _id(attribute: Any) -> int:
    return int(attribute.exprId().id())


def _view_of(plan: Any, views: Collection[str]) -> str | None:
    """Returns the name of the view that the plan reads, in lower case; None if it is none of `views`."""
    if _kind(plan) != "View":
        return None
    view = str(plan.desc().identifier().table()).lower()
    return view if view in views else None
