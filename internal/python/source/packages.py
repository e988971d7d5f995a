"""Loads packages of the asset folder into Pyodide's file system when code imports them (PY-20).

INDEX lists the packages: name, version, file (of the wheel, or of an archive of shared libraries),
imports (modules at its top), depends (names), and dynlib, whether it has shared libraries. The
runner sets it before the memory snapshot. The wheels were verified before the worker was started.

A package is unpacked once in a worker, with what it depends on: first into a directory that no
import sees, which an interrupt or an error leaves without effect, then moved into site-packages
while nothing can interrupt it.
"""

import importlib
import os
import re
import shutil
import sys
import zipfile
from importlib.machinery import PathFinder

from _dray_values import class_name, clean, is_a

STAGING = "/usr/dray"
LIBRARIES = "/usr/lib"  # where the loader of Emscripten looks for shared libraries
MAX_FILES = 50_000  # of a package
CHUNK = 256 << 10
LISTED = 40  # packages in a message

INDEX = []


class Invalid(Exception):
    """A wheel is refused."""


def normal(name):
    """Returns the normalized name of a package: PyPA's "Name normalization"."""
    return re.sub(r"[-_.]+", "-", name).lower()


class Packages:
    """A finder of sys.meta_path, and the packages of this worker.

    read(number, path) writes the file of INDEX[number] to a path of Pyodide's file system. limit
    bounds the unpacked files of all packages in bytes. calm() makes a context in which no interrupt
    is raised.
    """

    def __init__(self, read, limit, calm):
        self.read, self.limit, self.calm = read, limit, calm
        self.by_name = {normal(one["name"]): number for number, one in enumerate(INDEX)}
        self.by_import = {}
        for number, one in enumerate(INDEX):
            for module in one["imports"]:
                self.by_import.setdefault(module.partition(".")[0], []).append(number)
        self.loaded = set()
        self.size = 0  # of the unpacked files, in bytes
        self.site = next(folder for folder in sys.path if folder.endswith("/site-packages"))

    # importlib calls these.

    def find_spec(self, name, path=None, target=None):
        """Loads the package of a module unless another one of sys.path has its name."""
        if path is not None:
            return None
        wanted = [n for n in self.by_import.get(name, ()) if n not in self.loaded]
        if not wanted:
            return None
        spec = PathFinder.find_spec(name)
        if spec is not None and spec.loader is not None:
            return spec
        for number in wanted:
            self.load(number, name)
        return PathFinder.find_spec(name)

    def find_distributions(self, context=None):
        """Loads the package that importlib.metadata asks for, which then finds it."""
        number = self.by_name.get(normal(getattr(context, "name", None) or ""))
        if number is not None:
            self.load(number, None)
        return ()

    def load(self, number, module):
        """Unpacks a package after those that it depends on."""
        for one in self.missing(number):
            package = INDEX[one]
            try:
                self.unpack(one, package)
            except MemoryError:
                raise
            except Exception as err:
                raise ImportError("cannot load the package %s %s: %s" % (
                    package["name"], package["version"], err), name=module) from None

    def missing(self, number):
        """Returns what is to be loaded, each after what it depends on. Cycles are allowed."""
        order, seen, todo = [], {number}, [(number, False)]
        while todo:
            one, done = todo.pop()
            if one in self.loaded:
                continue
            if done:
                order.append(one)
                continue
            todo.append((one, True))
            for need in INDEX[one]["depends"]:
                need = self.by_name.get(normal(need))
                if need is not None and need not in seen:
                    seen.add(need)
                    todo.append((need, False))
        return order

    def unpack(self, number, package):
        """Unpacks a package. After an exception nothing of it is there."""
        staging = "%s/%d" % (STAGING, number)
        try:
            shutil.rmtree(staging, ignore_errors=True)  # an interrupt may have left it
            os.makedirs(staging)
            wheel = staging + "/wheel"
            self.read(number, wheel)
            with zipfile.ZipFile(wheel) as archive:
                size = self.extract(archive, package, staging)
            with self.calm():
                roots = (("site", self.site), ("data", sys.prefix), ("dynlib", LIBRARIES))
                for source, target in roots:
                    if os.path.isdir(staging + "/" + source):
                        check_merge(staging + "/" + source, target)
                for source, target in roots:
                    if os.path.isdir(staging + "/" + source):
                        merge(staging + "/" + source, target)
                self.loaded.add(number)
                self.size += size
                importlib.invalidate_caches()
        finally:
            with self.calm():
                shutil.rmtree(staging, ignore_errors=True)

    def extract(self, archive, package, staging):
        """Unpacks an archive into the directories site, data and dynlib, and returns its size."""
        members = archive.infolist()
        if len(members) > MAX_FILES:
            raise Invalid("it has more than %d files" % MAX_FILES)
        size = sum(member.file_size for member in members)
        if size > self.limit - self.size:
            raise Invalid("it has %d MiB, and the packages of a session may have %d MiB together; "
                          "raise python.memory" % (size >> 20, self.limit >> 20))
        targets, folders = {}, set()
        for member in members:
            parts = split(member)
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise Invalid("%.200r has an unknown compression" % member.filename)
            target = None if member.is_dir() else place(parts, package)
            if target is None:  # directories are made for their files
                continue
            if target in targets:
                raise Invalid("it has two files %.200r" % member.filename)
            targets[target] = member
            while "/" in target:
                target = target.rpartition("/")[0]
                folders.add(target)
        for target in folders.intersection(targets):
            raise Invalid("%.200r is a file and a directory" % targets[target].filename)
        for folder in sorted(folders):
            os.mkdir(staging + "/" + folder)
        for target, member in targets.items():
            copy(archive, member, staging + "/" + target)
        return size

    # What else a session needs.

    def preload(self, names):
        """Loads packages and imports their modules. Returns what is wrong, or None."""
        for name in names:
            try:
                number = self.by_name[normal(name)]
                self.load(number, None)
                for module in INDEX[number]["imports"]:
                    if not module.startswith("_"):
                        importlib.import_module(module)
            except BaseException as err:
                return "python.pyodide.preload: the package %s cannot be imported: %s: %s" % (
                    name, class_name(err), clean(str(err), 1000))
        return None

    def explain(self, err):
        """Returns what to do about an ImportError if a module is missing, or None."""
        for _ in range(8):
            if err is None or is_a(err, ModuleNotFoundError):
                break
            err = err.__cause__ or err.__context__
        name = getattr(err, "name", None)
        if type(name) is not str or name.partition(".")[0] in self.by_import:
            return None
        names = sorted("%s %s" % (one["name"], one["version"]) for one in INDEX)
        if len(names) > LISTED:
            names[LISTED:] = ["and %d more" % (len(names) - LISTED)]
        return "packages that can be imported besides the standard library: %s; `dray python fetch " \
            "--from DIR` adds wheels" % (", ".join(names) or "none")


def split(member):
    """Returns the parts of a member's name, which must lead nowhere else."""
    name = member.orig_filename
    parts = name.removesuffix("/").split("/")
    if "\\" in name or "\0" in name or any(part in ("", ".", "..") for part in parts):
        raise Invalid("it has a file with the name %.200r" % name)
    return parts


def place(parts, package):
    """Returns the path of a member below the staging directory, or None if it is not needed."""
    if package["dynlib"]:
        return "dynlib/" + parts[-1] if re.search(r"\.so(\.\d+)*$", parts[-1]) else None
    if len(parts) > 1 and parts[0].endswith(".data"):  # PyPA's "The .data directory"
        kind, parts = parts[1], parts[2:]
        if not parts or kind not in ("purelib", "platlib", "data"):
            return None
        return "/".join(["data" if kind == "data" else "site"] + parts)
    return "/".join(["site"] + parts)


def copy(archive, member, target):
    """Unpacks one file. Its size is set first, so that it takes no more memory than it needs."""
    with archive.open(member) as source, open(target, "xb") as file:
        file.truncate(member.file_size)
        while data := source.read(CHUNK):
            file.write(data)
        if file.tell() != member.file_size:
            raise Invalid("%.200r is shorter than the archive says" % member.filename)


def check_merge(source, target):
    """Refuses a file in the place of a directory, or the other way round."""
    for entry in os.scandir(source):
        there = target + "/" + entry.name
        if not os.path.lexists(there):
            continue
        if entry.is_dir() != os.path.isdir(there) or os.path.islink(there):
            raise Invalid("%s is in its place" % there)
        if entry.is_dir():
            check_merge(entry.path, there)


def merge(source, target):
    """Moves what is in a directory into another one. Files of the same name are replaced."""
    os.makedirs(target, exist_ok=True)
    for entry in list(os.scandir(source)):
        there = target + "/" + entry.name
        if entry.is_dir() and os.path.isdir(there):
            merge(entry.path, there)
        else:
            os.replace(entry.path, there)
