"""Load our Java classes in a session's JVM. Janino, with which Spark compiles generated code, compiles their source."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from stratalog.util import REAL_FILESYSTEM

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PACKAGE: Final = "io.stratalog.spark"

_REASON_MAX: Final = 200


def is_connect(spark: SparkSession) -> bool:
    """Return whether this is a session of Spark Connect, with no JVM in this process."""
    return "connect" in type(spark).__module__


def reason_of(error: Exception) -> str:
    """Return an error in one line. For an error of the JVM, that is the Java exception and its message."""
    text = str(getattr(error, "java_exception", None) or f"{type(error).__name__}: {error}")
    line = " ".join((text.strip().splitlines() or [type(error).__name__])[0].split()).rstrip(".")
    line = re.sub(r"^(?:\w+\.)+(?=[A-Z])", "", line)  # the package of a Java exception
    return line if len(line) <= _REASON_MAX else f"{line[:_REASON_MAX]}..."


@dataclass(frozen=True, slots=True)
class JvmClasses:
    """The classes of one source file, loaded in the JVM of a session."""

    spark: SparkSession
    name: str
    _loader: Any
    _bytecode: Mapping[str, bytes]

    @classmethod
    def compile(cls, spark: SparkSession, source: Path) -> JvmClasses:
        """Compile `<name>.java`. Raises Py4J's errors: this Spark may lack classes that the source uses."""
        jvm: Any = spark._jvm
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
        compiler.cook(REAL_FILESYSTEM.read_bytes(source).decode())
        bytecode = {str(entry.getKey()): bytes(entry.getValue()) for entry in compiler.getBytecodes().entrySet()}
        return cls(spark, source.stem, compiler.getClassLoader(), bytecode)

    def new(self, nested: str, *arguments: Any) -> Any:
        """Return an instance of a nested class that has one public constructor."""
        gateway: Any = self.spark.sparkContext._gateway
        values = gateway.new_array(gateway.jvm.java.lang.Object, len(arguments))
        for index, argument in enumerate(arguments):
            values[index] = argument
        found = self._loader.loadClass(f"{_PACKAGE}.{self.name}${nested}")
        return found.getConstructors()[0].newInstance(values)

    def ship(self) -> None:
        """Send the classes to the executors as a jar of the application, once."""
        context: Any = self.spark.sparkContext
        jar = Path(context._temp_dir) / f"{self.name}.jar"
        if REAL_FILESYSTEM.exists(jar):
            return
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, code in self._bytecode.items():
                archive.writestr(f"{name.replace('.', '/')}.class", code)
        with REAL_FILESYSTEM.open(jar, write=True, create=True) as file:
            file.write_at(packed.getvalue(), 0)
        context._jsc.sc().addJar(str(jar))
