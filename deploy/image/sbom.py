"""Writes the image's software bill of materials, CycloneDX in JSON: `python sbom.py ENVIRONMENT FILE`.

Python packages are listed by cyclonedx-bom, jars by what they say of themselves, Debian's packages by dpkg. The file is
checked against CycloneDX's schema.
"""

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

_POM = re.compile(r"META-INF/maven/([^/]+)/([^/]+)/pom\.properties")
_JAR = re.compile(r"(.+?)-(\d.*)\.jar")


def python_packages(environment: Path) -> Bom:
    """Returns a bill with the packages of a Python environment."""
    command = [str(Path(sys.executable).with_name("cyclonedx-py")), "environment", "--output-reproducible"]
    result = subprocess.run([*command, str(environment)], capture_output=True, check=True)  # noqa: S603 - a tool of the build
    return Bom.from_json(json.loads(result.stdout))  # type: ignore[attr-defined]


def jar(path: Path) -> Component:
    """Returns a jar, with the libraries that were put into it as its components."""
    with zipfile.ZipFile(path) as archive:
        libraries = [
            (match[1], match[2], _property(archive.read(name).decode(errors="replace"), "version"))
            for name in archive.namelist()
            if (match := _POM.fullmatch(name))
        ]
    match = _JAR.fullmatch(path.name)
    name, version = (match[1], match[2]) if match else (path.stem, "")
    groups = [group for group, artifact, number in libraries if f"{artifact}-{number}" in f"{name}-{version}"]
    group = groups[0] if groups else None
    return Component(
        type=ComponentType.LIBRARY,
        group=group,
        name=name,
        version=version or None,
        purl=PackageURL("maven", group, name, version or None) if group else None,
        bom_ref=str(path),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=sha256(path.read_bytes()).hexdigest())],
        components=[
            _library(path, *library) for library in sorted(set(libraries)) if library != (group, name, version)
        ],
    )


def _library(path: Path, group: str, name: str, version: str) -> Component:
    purl = PackageURL("maven", group, name, version or None)
    reference = f"{path}!{group}:{name}:{version}"
    return Component(
        type=ComponentType.LIBRARY, group=group, name=name, version=version or None, purl=purl, bom_ref=reference
    )


def _property(text: str, name: str) -> str:
    match = re.search(rf"(?m)^{name}\s*=\s*(\S+)", text)
    return match[1] if match else ""


def debian_packages() -> Iterator[Component]:
    """Yields the installed packages of Debian."""
    command = ["dpkg-query", "--show", "--showformat", "${Package}\t${Version}\t${Architecture}\n"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()  # noqa: S603 - of the base
    for name, version, architecture in (line.split("\t") for line in lines):
        purl = PackageURL("deb", "debian", name, version, {"arch": architecture})
        yield Component(
            type=ComponentType.LIBRARY, name=name, version=version, purl=purl, bom_ref=f"deb:{name}:{architecture}"
        )


def main(environment: Path, target: Path) -> None:
    """Writes the bill of the image in which it runs.

    Raises:
        SystemExit: It would not fit CycloneDX's schema.
    """
    bom = python_packages(environment)
    version = os.environ.get("VERSION") or None
    bom.metadata.component = Component(type=ComponentType.CONTAINER, name="zync", version=version, bom_ref="image")
    bom.components.update(map(jar, sorted(environment.rglob("*.jar"))))
    bom.components.update(debian_packages())
    bom.register_dependency(bom.metadata.component, bom.components)
    text = JsonV1Dot6(bom).output_as_string(indent=1)
    if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        sys.exit(f"the bill of materials does not fit CycloneDX's schema: {error}")
    target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
