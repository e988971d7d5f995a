"""Converts values to JSON with type tags, within limits (PY-05, PY-22).

What JSON holds exactly stays as it is: None, bool, str, int up to 2**53, finite float, list, tuple
(as an array) and dict with str keys. Everything else is an object with the member "$type":

    int        value: decimal digits
    float      value: "NaN", "Infinity" or "-Infinity"
    bytes      value: base64
    ndarray    dtype, shape, value: the items, flat in C order; truncated: true if items are missing
    dataframe  columns, dtypes, index, shape, value: rows; truncated: true if some are missing;
               series: true for a single column. A missing value is null.
    repr       class, value: a repr of at most 4096 characters
    circular   value: "[Circular]", for a list, tuple or dict that contains itself
    truncated  value: "[TruncatedDepth]", for a container below the eighth

A list, tuple or dict with more than 1024 items, and a value with more bytes than the limit, raise
TooLarge. A tag adds no level of depth. The class of a value is that of type(), which user code
cannot change. Except for arrays and data frames, only __repr__ of a value is called. It may raise
or return anything.

Both runtimes use this file. It needs no processes, threads or files.
"""

import binascii
import itertools
import json
import sys

MAX_DEPTH = 8
MAX_ITEMS = 1024  # of an array, and properties of an object
MAX_BYTES = 4 << 20  # of JSON
MAX_REPR = 4096
MAX_EXACT = 1 << 53
MAX_CELLS = 10000  # of a data frame
MAX_DIGIT_BITS = 13000  # of an int as decimal digits: below sys.int_info.default_max_str_digits

encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode

_mro_of = type.__dict__["__mro__"].__get__
_qualname_of = type.__dict__["__qualname__"].__get__
_module_of = type.__dict__["__module__"].__get__


class TooLarge(Exception):
    """A value exceeds a limit."""


def to_json(value, limit=MAX_BYTES):
    """Returns a value as JSON text. Raises TooLarge above the limit in bytes of UTF-8."""
    kind = type(value)
    if value is None or kind is bool or kind is int and -MAX_EXACT <= value <= MAX_EXACT:
        return encode(value)
    text = encode(_Converter(limit).convert(value, 0))
    if len(text) > limit or not text.isascii() and len(text.encode()) > limit:
        raise _too_large(limit)
    return text


def _too_large(limit):
    return TooLarge("the value is larger than %d bytes of JSON" % limit)


class _Converter:
    """Builds what encode accepts. left is a lower bound of the bytes of JSON that may follow."""

    def __init__(self, limit):
        self.limit = self.left = limit
        self.path = set()  # ids of the containers around a value

    def spend(self, size):
        self.left -= size
        if self.left < 0:
            raise _too_large(self.limit)

    def convert(self, value, depth):
        self.spend(2)
        kind = type(value)
        if value is None or kind is bool:
            return value
        mro = _mro_of(kind)
        for base in mro:
            for known, method in _METHODS:
                if base is known:
                    return method(self, value, depth)
        for adapter in _ADAPTERS:
            try:
                found = adapter(self, value, mro, depth)
            except (TooLarge, MemoryError):
                raise
            except Exception:  # a method of the value fails: it has no form but its repr
                break
            if found is not None:
                return found
        return self.tagged_repr(value)

    def tag(self, name, value, **more):
        self.spend(20)
        return dict({"$type": name}, **more, value=value)

    def tagged_repr(self, value):
        text = describe(value)
        self.spend(len(text))
        return {"$type": "repr", "class": class_name(value), "value": text}

    def int(self, value, _depth):
        value = int.__pos__(value)
        if -MAX_EXACT <= value <= MAX_EXACT:
            return value
        if value.bit_length() > MAX_DIGIT_BITS:
            return self.tagged_repr(value)
        return self.tag("int", str(value))

    def float(self, value, _depth):
        value = float.__pos__(value)
        if value != value:
            return self.tag("float", "NaN")
        if value in (_INFINITY, -_INFINITY):
            return self.tag("float", "Infinity" if value > 0 else "-Infinity")
        return value

    def str(self, value, _depth):
        value = str.__str__(value)
        self.spend(len(value))
        return value if is_text(value) else self.tagged_repr(value)

    def bytes(self, value, _depth):
        self.spend(bytes.__len__(value))
        return self.tag("bytes", _base64(bytes.__getitem__(value, slice(None))))

    def bytearray(self, value, _depth):
        self.spend(bytearray.__len__(value))
        return self.tag("bytes", _base64(bytes(bytearray.copy(value))))

    def list(self, value, depth):
        return self.items(value, list.__len__(value), list.__iter__(value), depth)

    def tuple(self, value, depth):
        return self.items(value, tuple.__len__(value), tuple.__iter__(value), depth)

    def items(self, value, count, iterator, depth):
        mark = self.enter(value, count, depth, "items")
        if mark is not None:
            return mark
        try:
            return [self.convert(item, depth + 1) for item in iterator]
        finally:
            self.path.discard(id(value))

    def dict(self, value, depth):
        mark = self.enter(value, dict.__len__(value), depth, "properties")
        if mark is not None:
            return mark
        try:
            result = {}
            pairs = list(dict.items(value))
            for key, item in pairs:
                if not has(_mro_of(type(key)), str):
                    return self.tagged_repr(value)
                key = str.__str__(key)
                if key == "$type" or not is_text(key):
                    return self.tagged_repr(value)
                self.spend(len(key) + 3)
                result[key] = self.convert(item, depth + 1)
            return result if len(result) == len(pairs) else self.tagged_repr(value)
        finally:
            self.path.discard(id(value))

    def enter(self, value, count, depth, noun):
        """Returns the mark that replaces a container, or None."""
        if id(value) in self.path:
            return self.tag("circular", "[Circular]")
        if depth >= MAX_DEPTH:
            return self.tag("truncated", "[TruncatedDepth]")
        if count > MAX_ITEMS:
            raise TooLarge("the value has a %s with %d %s, more than %d"
                           % (class_name(value), count, noun, MAX_ITEMS))
        self.path.add(id(value))
        return None

    # Adapters. The modules are used if user code has loaded them, and never imported.

    def numpy(self, value, mro, depth):
        generic, array = _loaded("numpy", "generic"), _loaded("numpy", "ndarray")
        if has(mro, generic):
            plain = value.item()
            return None if has(_mro_of(type(plain)), generic) else self.convert(plain, depth)
        if not has(mro, array):
            return None
        if depth >= MAX_DEPTH:
            return self.tag("truncated", "[TruncatedDepth]")
        flat = array.flat.__get__(value)[:MAX_ITEMS]
        if flat.dtype.kind in "mM":
            flat = flat.astype("U")
        more = {"truncated": True} if value.size > MAX_ITEMS else {}
        items = [self.convert(item, depth + 1) for item in flat.tolist()]
        return self.tag("ndarray", items, dtype=_short(value.dtype),
                        shape=[int(n) for n in value.shape], **more)

    def pandas(self, value, mro, depth):
        more = {}
        if has(mro, _loaded("pandas", "Series")):
            value, more = value.to_frame(), {"series": True}
        elif not has(mro, _loaded("pandas", "DataFrame")):
            return None
        rows, columns = (int(n) for n in value.shape)
        some = value.iloc[: _rows(rows, columns), :MAX_ITEMS]
        cells = [[None if _is_missing(cell) else cell for cell in row]
                 for row in some.itertuples(index=False, name=None)]
        more["index"] = [self.cell(label, depth) for label in some.index.tolist()]
        return self.frame(cells, (rows, columns), list(some.columns), list(some.dtypes), more, depth)

    def polars(self, value, mro, depth):
        more = {}
        if has(mro, _loaded("polars", "Series")):
            value, more = value.to_frame(), {"series": True}
        elif not has(mro, _loaded("polars", "DataFrame")):
            return None
        rows, columns = (int(n) for n in value.shape)
        some = value.head(_rows(rows, columns))
        cells = [row[:MAX_ITEMS] for row in some.rows()]
        return self.frame(cells, (rows, columns), value.columns[:MAX_ITEMS],
                          value.dtypes[:MAX_ITEMS], more, depth)

    def frame(self, cells, shape, columns, dtypes, more, depth):
        if depth >= MAX_DEPTH:
            return self.tag("truncated", "[TruncatedDepth]")
        data = [[self.cell(cell, depth) for cell in row] for row in cells]
        if len(data) < shape[0] or len(columns) < shape[1]:
            more["truncated"] = True
        return self.tag("dataframe", data, columns=[_short(name) for name in columns],
                        dtypes=[_short(kind) for kind in dtypes], shape=list(shape), **more)

    def cell(self, value, depth):
        """A date, a decimal and the like are text in a data frame, whose dtypes have the type."""
        converted = self.convert(value, depth + 2)
        if type(converted) is dict and converted.get("$type") == "repr":
            return _short(value)
        return converted


_INFINITY = float("inf")
_METHODS = (
    (int, _Converter.int), (float, _Converter.float), (str, _Converter.str),
    (list, _Converter.list), (tuple, _Converter.tuple), (dict, _Converter.dict),
    (bytes, _Converter.bytes), (bytearray, _Converter.bytearray),
)
_ADAPTERS = (_Converter.numpy, _Converter.pandas, _Converter.polars)


def has(mro, base):
    """Reports whether a base is one of mro. A metaclass may lie about equality."""
    for one in mro:
        if one is base:
            return True
    return False


def is_a(value, base):
    """Is isinstance for a value that may lie about its class."""
    return has(_mro_of(type(value)), base)


def _loaded(module, name):
    """Returns a class of a module that is loaded, else a class that nothing has."""
    found = getattr(sys.modules.get(module), name, None)
    return found if has(_mro_of(type(found)), type) else _Converter


def _rows(rows, columns):
    return min(rows, MAX_ITEMS, max(1, MAX_CELLS // max(1, min(columns, MAX_ITEMS))))


def _is_missing(cell):
    """Reports whether a cell is None, NaN, NaT or NA: the last one refuses to be a bool."""
    try:
        return cell is None or bool(cell != cell)
    except Exception:
        return type(cell).__name__ == "NAType"


def _short(value):
    return clean(str(value), 200)


def _base64(data):
    return binascii.b2a_base64(data, newline=False).decode("ascii")


def is_text(text):
    """Reports whether an exact str has no lone surrogate, which UTF-8 cannot hold."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def clean(text, limit):
    """Returns a str without lone surrogates, cut in its middle to about limit characters."""
    text = str.__str__(text)
    if len(text) > limit:
        head = limit * 3 // 4
        text = "%s ... %d characters omitted ... %s" % (
            text[:head], len(text) - limit, text[head - limit:])
    return text if is_text(text) else text.encode("utf-8", "backslashreplace").decode()


def class_name(value):
    """Returns the class of a value, which it cannot forge by __class__ or a metaclass."""
    kind = type(value)
    try:
        module, name = _module_of(kind), _qualname_of(kind)
        if type(module) is str and module != "builtins":
            name = module + "." + name
        return clean(name, 200)
    except Exception:
        return "object"


def describe(value, depth=0):
    """Returns a repr of at most MAX_REPR characters. Only KeyboardInterrupt leaves it."""
    try:
        return clean(_describe(value, depth), MAX_REPR)
    except KeyboardInterrupt:
        raise
    except BaseException as err:
        return "<%s object, repr() raised %s>" % (class_name(value), class_name(err))


def _describe(value, depth):
    kind = type(value)
    if (kind is str or kind is bytes) and len(value) > MAX_REPR:
        half = MAX_REPR // 2
        return "%r ... %d omitted ... %r" % (value[:half], len(value) - 2 * half, value[-half:])
    if kind is int and value.bit_length() > MAX_DIGIT_BITS:
        bits = value.bit_length()
        sign = "-" if value < 0 else ""
        return "%s0x%x... (%d bits)" % (sign, abs(value) >> (bits - 256), bits)
    brackets = next((pair for known, pair in _BRACKETS if known is kind), None)
    if brackets is None or depth > 3:
        return repr(value)
    some = list(itertools.islice(value.items() if kind is dict else value, 65))
    if kind is dict:
        parts = [describe(k, depth + 1) + ": " + describe(v, depth + 1) for k, v in some[:64]]
    else:
        parts = [describe(item, depth + 1) for item in some[:64]]
    if len(some) > 64:
        parts.append("... (%d items)" % len(value))
    return brackets[0] + ", ".join(parts) + brackets[1] if parts else repr(value)


_BRACKETS = (
    (list, "[]"), (dict, "{}"), (set, "{}"), (tuple, ("(", ",)")),
    (frozenset, ("frozenset({", "})")),
)
