"""Extension of griffe: signatures show public types and the values of defaults, not the private names in the code."""

import dataclasses
import importlib
from typing import Any

import griffe

Shown = str | griffe.Expr | None


class PublicTypes(griffe.Extension):
    """Replaces private names in annotations, defaults and base classes."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite what the signature of a function, class or field shows."""
        if isinstance(obj, griffe.Function):
            rewrite_parameters(obj)
        elif isinstance(obj, griffe.Class):
            obj.bases = [shown for base in obj.bases for shown in public_bases(base, obj)]
        elif isinstance(obj, griffe.Attribute) and isinstance(obj.parent, griffe.Class):
            obj.annotation = public_annotation(obj.annotation, obj)
            obj.value = field_default(obj)


def rewrite_parameters(function: griffe.Function) -> None:
    """Replace private names in parameters and in what a function returns."""
    parameters: list[griffe.Parameter] = []
    for one in function.parameters:
        if options := unpacked_options(one.annotation, function):
            parameters += options
            continue
        one.annotation = public_annotation(one.annotation, function)
        # griffe makes the constructor of a dataclass from its fields, with the code of their defaults.
        field = function.parent.members.get(one.name) if function.name == "__init__" else None
        is_field = isinstance(field, griffe.Attribute) and isinstance(one.default, griffe.ExprCall)
        one.default = field_default(field) if is_field else public_default(one.default, function)
        parameters.append(one)
    function.parameters = griffe.Parameters(*parameters)
    function.returns = public_annotation(function.returns, function)


def is_private(name: object) -> bool:
    """Return whether an expression is a private name of this package; those of other packages stay as they are."""
    if not isinstance(name, griffe.ExprName) or not name.name.startswith("_"):
        return False
    # The parent of an attribute, as in argparse._SubParsersAction, is another expression.
    scope = name.parent
    return isinstance(scope, griffe.Object) and name.canonical_path.startswith(f"{scope.package.path}.")


def has_private(expression: Shown) -> bool:
    """Return whether an expression contains a private name."""
    return isinstance(expression, griffe.Expr) and any(map(is_private, expression.iterate(flat=True)))


def definition(name: griffe.ExprName, obj: griffe.Object) -> griffe.Object:
    """Return the object that a private name means."""
    found: griffe.Object = obj.modules_collection[name.canonical_path]
    return found


def public_annotation(expression: Any, obj: griffe.Object) -> Any:
    """Replace private aliases of types by what they stand for, and private classes by their first base."""
    if is_private(expression):
        meant = definition(expression, obj)
        value = meant.value if isinstance(meant, griffe.Attribute) else next(iter(meant.bases), None)
        return expression if value is None else public_annotation(value, meant)
    if isinstance(expression, list):
        return [public_annotation(one, obj) for one in expression]
    if not isinstance(expression, griffe.Expr):
        return expression
    fields = {field.name: getattr(expression, field.name) for field in dataclasses.fields(expression)}
    nested = {name: value for name, value in fields.items() if isinstance(value, griffe.Expr | list)}
    return dataclasses.replace(expression, **{name: public_annotation(one, obj) for name, one in nested.items()})


def unpacked_options(annotation: Shown, function: griffe.Function) -> list[griffe.Parameter]:
    """Return the keyword arguments of ``**options: Unpack[_Options]``; empty for another annotation."""
    if not isinstance(annotation, griffe.ExprSubscript) or str(annotation.left) != "Unpack":
        return []
    if not is_private(annotation.slice):
        return []
    options = definition(annotation.slice, function)
    return [
        griffe.Parameter(one.name, annotation=one.annotation, kind=griffe.ParameterKind.keyword_only, default="...")
        for one in options.attributes.values()
    ]


def public_bases(base: Shown, cls: griffe.Class) -> list[Shown]:
    """Return a base class, or the bases of a private one; private type arguments are left out."""
    if isinstance(base, griffe.ExprSubscript) and has_private(base.slice):
        return public_bases(base.left, cls)
    if not is_private(base):
        return [base]
    private = definition(base, cls)
    return [shown for one in private.bases for shown in public_bases(one, private)]


def public_default(default: Shown, obj: griffe.Object) -> Shown:
    """Return a default, or its value if it is a private constant."""
    meant = definition(default, obj) if is_private(default) else None
    return meant.value if isinstance(meant, griffe.Attribute) else default


def field_default(field: griffe.Attribute) -> Shown:
    """Return the default of a field of a dataclass, or its value if a call makes it."""
    is_field = any("dataclass" in str(one.value) for one in field.parent.decorators)
    if not is_field or not isinstance(field.value, griffe.ExprCall):
        return public_default(field.value, field)
    cls = getattr(importlib.import_module(field.module.path), field.parent.name)
    one = next((one for one in dataclasses.fields(cls) if one.name == field.name), None)
    if one is None:
        return field.value
    if one.default is not dataclasses.MISSING:
        return repr(one.default)
    return None if one.default_factory is dataclasses.MISSING else repr(one.default_factory())
