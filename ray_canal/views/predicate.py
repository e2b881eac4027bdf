"""Row predicates: a SQL expression over before and after, run as Arrow compute over whole batches.

The expression is read in MySQL's syntax. NULL is SQL's: a comparison with it is neither true nor
false, and only rows for which the whole is true pass. Text compares code point by code point.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import exp

from ray_canal.errors import ConfigError
from ray_canal.views.presence import IMAGES, PRESENT, lacks
from ray_canal.views.sql_functions import arrow_pattern, chosen, nonzero, remainder, same
from ray_canal.views.sql_values import (
    Columns,
    Value,
    ValueKind,
    aligned,
    applied,
    constant,
    decimal_of,
    moment,
    number_type,
    span,
)

_INT64_MAX = (1 << 63) - 1
_LITERAL_DIGITS_MAX = 76
_LIST_MIN = 8
"""A list of so many literals is looked up in a set; a shorter one is compared one by one."""
_TOO_DEEP = "where: so long and deep an expression cannot be read; IN (…) takes long lists"


def parse(text: str) -> exp.Expression:
    """Read an expression. Raises ConfigError: it is none."""
    try:
        return sqlglot.parse_one(text, read="mysql", into=exp.Condition)
    except RecursionError:
        raise ConfigError(_TOO_DEEP) from None
    except sqlglot.errors.SqlglotError as error:
        details = getattr(error, "errors", None) or [{}]
        reason = details[0].get("description") or str(error).split("\n")[0]
        if reason.startswith("Required keyword"):  # and the name of a class
            reason = "an operand is missing"
        raise ConfigError(f"where {text!r} is no SQL expression: {reason}") from None


def names(text: str) -> set[str]:
    """Return the names in an expression, of images and columns, in lower case. Raises
    ConfigError."""
    return {each.name.lower() for each in parse(text).find_all(exp.Identifier)}


class Predicate:
    """An expression for batches of one schema. Raises ConfigError: an unknown column, kinds that do
    not go together, syntax that is not there."""

    def __init__(self, tree: exp.Expression, schema: pa.Schema) -> None:
        try:
            self._text = _sql(tree)
            compiler = _Compiler(_columns(_no_rows(schema)))
            self._value = compiler.truth(tree)
            self._used = compiler.used
        except RecursionError:
            raise ConfigError(_TOO_DEEP) from None
        except ConfigError as error:
            raise ConfigError(f"where {self._text}: {error}") from None
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise ConfigError(f"where {self._text}: {error}") from None

    @property
    def asks_for_images(self) -> bool:
        """True if the condition reads before or after, and not only the change's place."""
        return bool(self._used)

    def filtered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows for which it is true. Raises ConfigError: a number is out of its range; a row
        lacks a column, so it cannot be told."""
        for name in sorted(self._used):
            if lacks(batch, *name.split(".", 1)):
                raise ConfigError(
                    f"where {self._text}: {name} is not in every row, as the server leaves columns "
                    "out (binlog_row_image MINIMAL or NOBLOB); set it to FULL, or leave out `where`"
                )
        try:
            found = self._value.run(_columns(batch))
        except pa.ArrowInvalid as error:
            raise ConfigError(f"where {self._text}: {error}") from None
        except RecursionError:
            raise ConfigError(_TOO_DEEP) from None
        if isinstance(found, pa.Scalar):
            return batch if found.as_py() else batch.slice(0, 0)
        return batch.filter(found)


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in schema], schema=schema)


def _columns(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    """Return a batch's columns by name, an image's as `before.COLUMN` and `after.COLUMN`, which are
    NULL where there is no such image."""
    found: dict[str, pa.Array] = {}
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if field.name in PRESENT:
            continue
        if field.name not in IMAGES:
            found[field.name] = column
            continue
        for inner, child in zip(field.type, column.flatten(), strict=True):
            found[f"{field.name}.{inner.name}"] = child
    return found


class _Compiler:
    """Expressions to values, for the columns of `empty`."""

    def __init__(self, empty: Columns) -> None:
        self._empty = empty
        self.used: set[str] = set()  # before.COLUMN and after.COLUMN

    def truth(self, node: exp.Expression) -> Value:
        """An expression as a condition: a number is true unless it is zero."""
        value = self.value(node)
        if value.kind is ValueKind.BOOL:
            return value
        if value.kind is ValueKind.NUMBER:
            return self._applied(pc.not_equal, *aligned(value, constant(0, pa.int64())))
        if value.kind is ValueKind.NULL:
            return value.cast(pa.bool_())
        raise ConfigError(f"{_sql(node)} is {value.kind.value}, not a condition")

    def value(self, node: exp.Expression) -> Value:
        """An expression's value."""
        compiled = _RULES.get(type(node))
        if compiled is None:
            raise ConfigError(f"{_sql(node)}: {type(node).__name__} is not supported")
        return compiled(self, node)

    def _applied(self, function: Callable[..., Any], *values: Value) -> Value:
        return applied(function, list(values), self._empty)

    # --- columns and literals -----------------------------------------------------------------

    def column(self, node: exp.Column) -> Value:
        if node.args.get("db") is not None:
            raise ConfigError(f"{_sql(node)}: expected before.COLUMN or after.COLUMN")
        name = f"{node.table.lower()}.{node.name}" if node.table else node.name
        found = self._spelled(name)
        if found.startswith(("before.", "after.")):
            self.used.add(found)
        column = self._empty[found]
        if pa.types.is_dictionary(column.type):
            text = column.type.value_type
            return Value(lambda columns: columns[found].cast(text), text)
        return Value(lambda columns: columns[found], column.type)

    def _spelled(self, name: str) -> str:
        """The column's own spelling. Raises ConfigError: there is none."""
        if name in self._empty:
            return name
        folded = [known for known in self._empty if known.lower() == name.lower()]
        if len(folded) == 1:
            return folded[0]
        near = [f"after.{name}"] if f"after.{name}" in self._empty else []
        near += difflib.get_close_matches(name, list(self._empty), n=1)
        raise ConfigError(
            f"there is no column {name}" + (f"; did you mean {near[0]}?" if near else "")
        )

    def literal(self, node: exp.Literal) -> Value:
        if node.is_string:
            return constant(node.this, pa.string(), node.this)
        text = str(node.this)
        if text.isdigit() and len(text) <= 19 and int(text) <= _INT64_MAX:
            return constant(int(text), pa.int64())
        whole, _, fraction = text.partition(".")
        if not (whole + fraction).isdigit() or len(whole + fraction) > _LITERAL_DIGITS_MAX:
            return constant(float(text), pa.float64())
        make = pa.decimal128 if len(whole + fraction) <= 38 else pa.decimal256
        kind = make(len(whole + fraction), len(fraction))
        return constant(pa.scalar(text).cast(kind), kind)

    def hex_string(self, node: exp.HexString) -> Value:
        digits = str(node.this)
        return constant(bytes.fromhex(digits.zfill(len(digits) + len(digits) % 2)), pa.binary())

    def cast(self, node: exp.Cast) -> Value:
        value, target = self.value(node.this), node.to.this
        literals = {
            exp.DataType.Type.DATE: moment, exp.DataType.Type.DATETIME: moment,
            exp.DataType.Type.TIMESTAMP: moment, exp.DataType.Type.TIMESTAMPTZ: moment,
            exp.DataType.Type.TIME: span,
        }  # fmt: skip
        if value.text is not None and target in literals:
            # The text stays: next to a TIMESTAMP it is an instant.
            return dataclasses.replace(literals[target](value.text), text=value.text)
        if value.kind is ValueKind.NUMBER and target in (
            exp.DataType.Type.DOUBLE, exp.DataType.Type.FLOAT
        ):  # fmt: skip
            return value.cast(pa.float64())
        texts = (exp.DataType.Type.CHAR, exp.DataType.Type.VARCHAR, exp.DataType.Type.TEXT)
        if target in texts and value.kind in (ValueKind.NUMBER, ValueKind.TEXT, ValueKind.NULL):
            return value.cast(pa.string())
        raise ConfigError(f"{_sql(node)}: {value.kind.value} cannot be cast so")

    # --- comparisons --------------------------------------------------------------------------

    def pair(self, node: exp.Expression) -> tuple[Value, Value]:
        return self.aligned(self.value(node.this), self.value(node.expression))

    def aligned(self, left: Value, right: Value) -> tuple[Value, Value]:
        if ValueKind.OTHER in (left.kind, right.kind):
            raise ConfigError("a list or an object can only be asked for NULL")
        return aligned(left, right)

    def compared(self, function: Callable[..., Any]) -> Callable[[exp.Expression], Value]:
        return lambda node: self._applied(function, *self.pair(node))

    def same(self, node: exp.NullSafeEQ) -> Value:
        return self._applied(same, *self.pair(node))

    def between(self, node: exp.Between) -> Value:
        subject = self.value(node.this)
        low = self._applied(
            pc.greater_equal, *self.aligned(subject, self.value(node.args["low"]))
        )
        high = self._applied(pc.less_equal, *self.aligned(subject, self.value(node.args["high"])))
        return self._applied(pc.and_kleene, low, high)

    def among(self, node: exp.In) -> Value:
        """Compile `x IN (list)`, with SQL's NULL. Raises ConfigError: a subquery."""
        if not node.expressions:
            raise ConfigError(f"{_sql(node)}: expected a list of values")
        subject = self.value(node.this)
        if len(node.expressions) >= _LIST_MIN:
            signless = [i.this if isinstance(i, exp.Neg) else i for i in node.expressions]
            if all(isinstance(item, exp.Literal) for item in signless):
                return self._listed(subject, [self.value(item) for item in node.expressions])
        found = [
            self._applied(pc.equal, *self.aligned(subject, self.value(item)))
            for item in node.expressions
        ]
        return reduce(lambda left, right: self._applied(pc.or_kleene, left, right), found)

    def _listed(self, subject: Value, literals: list[Value]) -> Value:
        values = []
        for literal in literals:
            subject, literal = self.aligned(subject, literal)
            values.append(literal)
        kind = subject.type
        known = pa.array([value.cast(kind).run({}).as_py() for value in values], kind)
        return self._applied(
            lambda found: pc.if_else(
                pc.is_null(found), pa.scalar(None, pa.bool_()), pc.is_in(found, value_set=known)
            ),
            subject,
        )

    def like(self, node: exp.Like, escape: str = "\\") -> Value:
        subject, pattern = self.value(node.this), node.expression
        if subject.kind not in (ValueKind.TEXT, ValueKind.NULL):
            raise ConfigError(f"{_sql(node)}: {subject.kind.value} has no LIKE, only text")
        if not (isinstance(pattern, exp.Literal) and pattern.is_string):
            raise ConfigError(f"{_sql(node)}: the pattern must be a literal")
        translated = arrow_pattern(pattern.this, escape)
        found = self._applied(
            lambda texts: pc.match_like(texts, pattern=translated), subject.cast(pa.string())
        )
        return self._applied(pc.invert, found) if node.args.get("negate") else found

    def escaped(self, node: exp.Escape) -> Value:
        if not isinstance(node.this, exp.Like):
            raise ConfigError(f"{_sql(node)}: ESCAPE belongs to LIKE")
        return self.like(node.this, node.expression.name)

    def is_(self, node: exp.Is) -> Value:
        what = node.expression
        if isinstance(what, exp.Null):
            return self._applied(pc.is_null, self.value(node.this))
        if isinstance(what, exp.Boolean):
            truth = self.truth(node.this)
            wanted = truth if what.this else self._applied(pc.invert, truth)
            return self._applied(lambda found: pc.fill_null(found, False), wanted)
        raise ConfigError(f"{_sql(node)}: expected IS NULL, IS TRUE or IS FALSE")

    # --- logic --------------------------------------------------------------------------------

    def logic(self, function: Callable[..., Any]) -> Callable[[exp.Expression], Value]:
        return lambda node: self._applied(
            function, self.truth(node.this), self.truth(node.expression)
        )

    def negated(self, node: exp.Not) -> Value:
        return self._applied(pc.invert, self.truth(node.this))

    # --- numbers ------------------------------------------------------------------------------

    def _numbers(self, node: exp.Expression) -> list[Value]:
        """Return both operands' values, of number types. Raises ConfigError: one is no number."""
        values = [self.value(node.this), self.value(node.expression)]
        for value in values:
            if value.kind not in (ValueKind.NUMBER, ValueKind.NULL):
                raise ConfigError(f"{_sql(node)}: {value.kind.value} is no number")
        return [v.cast(pa.int64()) if v.kind is ValueKind.NULL else v for v in values]

    def arithmetic(self, function: Callable[..., Any]) -> Callable[[exp.Expression], Value]:
        def compiled(node: exp.Expression) -> Value:
            left, right = self._numbers(node)
            common = number_type(left.type, right.type)
            if pa.types.is_uint64(common):  # a difference may be below zero
                common = pa.decimal128(20, 0)
            if pa.types.is_decimal(common):
                # Twice the digits for a product, and one more for a sum.
                wide = 2 * common.precision + 1 > 38
                left, right = (decimal_of(value, wide) for value in (left, right))
            else:
                left, right = left.cast(common), right.cast(common)
            return self._applied(function, left, right)

        return compiled

    def quotient(self, node: exp.Div) -> Value:
        left, right = (value.cast(pa.float64()) for value in self._numbers(node))
        return self._applied(lambda a, b: pc.divide(a, nonzero(b)), left, right)

    def whole(self, function: Callable[..., Any]) -> Callable[[exp.Expression], Value]:
        def compiled(node: exp.Expression) -> Value:
            values = self._numbers(node)
            if not all(pa.types.is_integer(value.type) for value in values):
                raise ConfigError(f"{_sql(node)}: expected whole numbers")
            return self._applied(function, *(value.cast(pa.int64()) for value in values))

        return compiled

    def minus(self, node: exp.Neg) -> Value:
        value = self.value(node.this)
        if value.kind not in (ValueKind.NUMBER, ValueKind.NULL):
            raise ConfigError(f"{_sql(node)}: {value.kind.value} is no number")
        signed = (
            number_type(value.type, pa.int64()) if value.kind is ValueKind.NUMBER else pa.int64()
        )
        if pa.types.is_decimal(value.type) or pa.types.is_floating(value.type):
            signed = value.type
        return self._applied(pc.negate_checked, value.cast(signed))

    # --- functions ----------------------------------------------------------------------------

    def of_text(self, function: Callable[..., Any]) -> Callable[[exp.Expression], Value]:
        def compiled(node: exp.Expression) -> Value:
            value = self.value(node.this)
            if value.kind not in (ValueKind.TEXT, ValueKind.NULL):
                raise ConfigError(f"{_sql(node)}: {value.kind.value} is no text")
            return self._applied(function, value.cast(pa.string()))

        return compiled

    def length(self, node: exp.Length) -> Value:
        measure = pc.binary_length if node.args.get("binary") else pc.utf8_length
        return self.of_text(lambda texts: pc.cast(measure(texts), pa.int64()))(node)

    def absolute(self, node: exp.Abs) -> Value:
        value = self.value(node.this)
        if value.kind is not ValueKind.NUMBER:
            raise ConfigError(f"{_sql(node)}: {value.kind.value} is no number")
        return self._applied(pc.abs_checked, value)

    def coalesce(self, node: exp.Coalesce) -> Value:
        values = [self.value(part) for part in (node.this, *node.expressions)]
        return reduce(
            lambda left, right: self._applied(pc.coalesce, *self.aligned(left, right)), values
        )

    def choice(self, node: exp.If | exp.Case) -> Value:
        branches = [node] if isinstance(node, exp.If) else node.args["ifs"]
        last = node.args.get("false") if isinstance(node, exp.If) else node.args.get("default")
        found = constant(None, pa.null()) if last is None else self.value(last)
        for branch in reversed(branches):
            condition = branch.this
            if isinstance(node, exp.Case) and node.this is not None:
                condition = exp.EQ(this=node.this, expression=branch.this)
            then, found = self.aligned(self.value(branch.args["true"]), found)
            found = self._applied(chosen, self.truth(condition), then, found)
        return found


def _sql(node: exp.Expression) -> str:
    return str(node.sql("mysql"))


_Rule = Callable[[_Compiler, Any], Value]


def _binary(build: str, function: Callable[..., Any]) -> _Rule:
    return lambda compiler, node: getattr(compiler, build)(function)(node)


_RULES: dict[type[exp.Expression], _Rule] = {
    exp.Column: _Compiler.column,
    exp.Literal: _Compiler.literal,
    exp.HexString: _Compiler.hex_string,
    exp.Boolean: lambda _, node: constant(bool(node.this), pa.bool_()),
    exp.Null: lambda _, node: constant(None, pa.null()),
    exp.Paren: lambda compiler, node: compiler.value(node.this),
    exp.Cast: _Compiler.cast,
    exp.EQ: _binary("compared", pc.equal),
    exp.NEQ: _binary("compared", pc.not_equal),
    exp.LT: _binary("compared", pc.less),
    exp.LTE: _binary("compared", pc.less_equal),
    exp.GT: _binary("compared", pc.greater),
    exp.GTE: _binary("compared", pc.greater_equal),
    exp.NullSafeEQ: _Compiler.same,
    exp.Between: _Compiler.between,
    exp.In: _Compiler.among,
    exp.Like: _Compiler.like,
    exp.Escape: _Compiler.escaped,
    exp.Is: _Compiler.is_,
    exp.And: _binary("logic", pc.and_kleene),
    exp.Or: _binary("logic", pc.or_kleene),
    exp.Xor: _binary("logic", pc.xor),
    exp.Not: _Compiler.negated,
    exp.Add: _binary("arithmetic", pc.add_checked),
    exp.Sub: _binary("arithmetic", pc.subtract_checked),
    exp.Mul: _binary("arithmetic", pc.multiply_checked),
    exp.Div: _Compiler.quotient,
    exp.Mod: _binary("whole", remainder),
    exp.IntDiv: _binary("whole", lambda a, b: pc.divide_checked(a, nonzero(b))),
    exp.Neg: _Compiler.minus,
    exp.Abs: _Compiler.absolute,
    exp.Lower: _binary("of_text", pc.utf8_lower),
    exp.Upper: _binary("of_text", pc.utf8_upper),
    exp.Length: lambda compiler, node: compiler.length(node),
    exp.Coalesce: _Compiler.coalesce,
    exp.If: _Compiler.choice,
    exp.Case: _Compiler.choice,
}
