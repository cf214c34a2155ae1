"""How kernels see the `State`: as bare pointers to its tables.

A `State` of forty NumPy arrays costs a kernel two things at every call: three hundred machine words of arguments, and counting references
of every array. Kernels therefore take a `Tables`: one pointer to a list of the addresses. In a kernel `s.ring` is a pointer to the first
item of that table, indexed like an array, without bounds. The arrays must outlive the `Tables`.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.typing.templates import AttributeTemplate
from numba.extending import NativeValue, infer_getattr, lower_getattr_generic, models, register_model, typeof_impl, unbox

from netsim.kernels.packet.layout import State

ITEM = {"path": types.int32, "size": types.int32, "ps_per_byte": types.float64, "cc": types.float64} | dict.fromkeys(
    ("hop_set", "set_idx", "dep_edge", "dep_lag", "dep_token", "rdep_edge", "rdep_lag", "rdep_token"), types.int32
)


class Tables:
    """The addresses of a state's tables, in the order of `State`."""

    def __init__(self, state: State) -> None:
        for name, array in state._asdict().items():
            assert str(ITEM.get(name, types.int64)) == str(array.dtype) and array.flags.c_contiguous, (name, array.dtype)
        self.state = state
        self.addresses = np.array([array.ctypes.data for array in state], np.int64)
        self.address = int(self.addresses.ctypes.data)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """In a kernel, a table."""


class TablesType(types.Type):
    """numba's type of `Tables`."""

    def __init__(self) -> None:
        super().__init__(name="PacketTables")


TABLES = TablesType()
register_model(TablesType)(models.OpaqueModel)


@typeof_impl.register(Tables)
def _typeof(value: Tables, context: Any) -> TablesType:
    return TABLES


@unbox(TablesType)
def _unbox(typ: TablesType, obj: Any, c: Any) -> NativeValue:
    number = c.pyapi.object_getattr_string(obj, "address")
    address = c.pyapi.long_as_longlong(number)
    c.pyapi.decref(number)
    return NativeValue(c.builder.inttoptr(address, cgutils.voidptr_t), is_error=cgutils.is_not_null(c.builder, c.pyapi.err_occurred()))


@infer_getattr
class _Attributes(AttributeTemplate):
    key = TablesType

    def generic_resolve(self, typ: TablesType, attr: str) -> types.Type | None:
        return types.CPointer(ITEM.get(attr, types.int64)) if attr in State._fields else None  # type: ignore[attr-defined]


@lower_getattr_generic(TablesType)
def _load(context: Any, builder: Any, typ: TablesType, value: Any, attr: str) -> Any:
    """Load the pointer; it never changes while a kernel runs, which the optimiser is told."""
    item = context.get_value_type(ITEM.get(attr, types.int64)).as_pointer()
    slot = builder.gep(builder.bitcast(value, item.as_pointer()), [ir.Constant(ir.IntType(64), State._fields.index(attr))])
    load = builder.load(slot)
    load.set_metadata("invariant.load", builder.module.add_metadata([]))
    return load
