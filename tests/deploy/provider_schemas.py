"""Writes tests/data/terraform-providers.json: the arguments of the resources that deploy/terraform has.

`python -m tests.deploy.provider_schemas`, after a resource is added there, or to compare with newer providers.

The providers themselves are built or fetched nowhere here. Their arguments come from npm packages that CDK for
Terraform generated from the schemas of the providers: of each resource a class in JavaScript, and its types. These
say the name and the type of each argument, whether it is a block, and whether it is required. They do not say which
optional arguments a provider sets by itself, so all of them are taken to be of that kind, and no defaults.
"""

import json
import re
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[1] / "data" / "terraform-providers.json"
PACKAGES = {"aws": "21.22.1", "azurerm": "14.23.1", "google": "16.12.1", "helm": "12.1.2", "kubernetes": "12.1.1"}
NAMES = {
    "aws": (
        "s3_bucket",
        "s3_bucket_lifecycle_configuration",
        "s3_bucket_policy",
        "s3_bucket_public_access_block",
        "s3_bucket_server_side_encryption_configuration",
        "s3_bucket_versioning",
        "iam_role",
        "iam_role_policy",
        "data_aws_eks_cluster",
        "data_aws_iam_openid_connect_provider",
    ),
    "azurerm": (
        "storage_account",
        "storage_container",
        "role_definition",
        "role_assignment",
        "user_assigned_identity",
        "federated_identity_credential",
        "data_azurerm_resource_group",
        "data_azurerm_kubernetes_cluster",
    ),
    "google": (
        "storage_bucket",
        "storage_bucket_iam_member",
        "project_iam_custom_role",
        "service_account",
        "service_account_iam_member",
        "data_google_client_config",
        "data_google_container_cluster",
    ),
    "helm": ("release",),
    "kubernetes": ("namespace_v1",),
}
TYPES: dict[str, Any] = {
    "string": "string",
    "boolean": "bool",
    "number": "number",
    "stringList": ["list", "string"],
    "numberList": ["list", "number"],
    "stringMap": ["map", "string"],
}
GETTERS = {"String": "string", "Boolean": "bool", "Number": "number", "List": ["list", "string"]}
Schema = dict[str, Any]


class Module:
    """A module of a package: one resource, data source or provider.

    Attributes:
        script: Its text in JavaScript.
        types: Its text in TypeScript.
        nested: Whether objects in it are attributes, as in providers made by the plugin framework, and not blocks.
    """

    def __init__(self, script: str, types: str, *, nested: bool) -> None:
        self.script, self.types, self.nested = script, types, nested

    @property
    def schema(self) -> Schema:
        """The schema of the resource."""
        config = re.search(
            r"export interface (\w+Config) extends cdktf|export interface (\w+ProviderConfig) ", self.types
        )
        assert config
        name = config[1] or config[2]
        body = re.search(r"\n    synthesizeHclAttributes\(\) \{(.*?)\n    \}", self.script, re.DOTALL)
        schema = self._block(body[1] if body else "", name)
        resource = self.script[self.script.rindex("\nclass ") :]
        for argument, type_ in self._computed(resource).items():
            schema["attributes"].setdefault(argument, {"type": type_, "computed": True})
        return schema

    def _required(self, interface: str) -> set[str]:
        found = re.search(rf"export interface {interface}\b[^{{]*\{{(.*?)\n\}}", self.types, re.DOTALL)
        assert found, interface
        names = re.findall(r"^    readonly (\w+): ", found[1], re.MULTILINE)
        return {re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", name) for name in names}

    def _block(self, body: str, interface: str) -> Schema:
        required = self._required(interface)
        schema: Schema = {"attributes": {}, "blocks": {}}
        entry = r"(\w+): \{\s*value: (.*?),\s*isBlock: (\w+),\s*type: \"(\w+)\",\s*storageClassType: \"(\w+)\""
        for name, value, is_block, kind, class_ in re.findall(entry, body, re.DOTALL):
            if name == "alias":  # tofu's own, of each provider
                continue
            flags = {"required": True} if name in required else {"optional": True, "computed": True}
            if is_block == "false":
                type_ = TYPES.get(class_, "dynamic")
                schema["attributes"][name] = {"type": ["set", type_[1]] if kind == "set" else type_, **flags}
                continue
            function = re.search(r"\b(?!cdktf\b)(\w+)ToHclTerraform\b", value)
            assert function, value
            inner = self._struct(function[1])
            if self.nested or ("MapperHcl(" in value and value.rstrip(")").split(")")[0].endswith(", false")):
                nesting = {"struct": "single", "set": "set"}.get(kind, "list")
                schema["attributes"][name] = {
                    "nested": {"nesting": nesting, "attributes": inner["attributes"]},
                    **flags,
                }
            else:
                nesting = "single" if name == "timeouts" else "set" if kind == "set" else "list"
                schema["blocks"][name] = {"nesting": nesting, "block": inner}
                if name in required:
                    schema["blocks"][name]["min_items"] = 1
                if kind == "struct" and nesting == "list":
                    schema["blocks"][name]["max_items"] = 1
        return schema

    def _struct(self, function: str) -> Schema:
        found = re.search(rf"function {function}ToHclTerraform\(struct\) \{{(.*?)\n\}}", self.script, re.DOTALL)
        assert found, function
        return self._block(found[1], function[0].upper() + function[1:])

    def _computed(self, class_: str) -> dict[str, Any]:
        """The types of the attributes that can only be read."""
        types: dict[str, Any] = {}
        pattern = r"// (\w+) - computed: true, optional: false.*\n(?:.*\{\n)?\s*(.*)"
        for name, line in re.findall(pattern, class_):
            if getter := re.search(r"this\.get(\w+?)Attribute\(", line):
                types[name] = GETTERS.get(getter[1], "dynamic")
            elif "StringMap(" in line:
                types[name] = ["map", "string"]
            elif items := re.search(r"new (\w+)List\(", line):
                inner = re.search(rf"\nclass {items[1]}OutputReference .*?\n\}}", self.script, re.DOTALL)
                assert inner, items[1]
                types[name] = ["list", ["object", self._computed(inner[0])]]
            else:
                types[name] = "dynamic"
        return types


def provider(name: str, version: str, folder: Path) -> dict[str, Any]:
    """The schemas of a provider's resources, from its package, which is fetched into the folder."""
    package = f"@cdktf/provider-{name}@{version}"
    subprocess.run(["npm", "pack", "--silent", package], cwd=folder, check=True, capture_output=True)
    with tarfile.open(folder / f"cdktf-provider-{name}-{version}.tgz") as archive:
        wanted = {"package/package.json"} | {
            f"package/lib/{module.replace('_', '-')}/index.{end}"
            for module in (*NAMES[name], "provider")
            for end in ("js", "d.ts")
        }
        texts: dict[str, str] = {}
        for member in archive:
            if member.name in wanted and (file := archive.extractfile(member)):
                texts[member.name] = file.read().decode()

    def schema(module: str) -> Schema:
        path = f"package/lib/{module.replace('_', '-')}/index"
        return Module(texts[f"{path}.js"], texts[f"{path}.d.ts"], nested=name == "helm").schema

    data = f"data_{name}_"
    return {
        "package": package,
        "version": json.loads(texts["package/package.json"])["cdktf"]["provider"]["version"],
        "provider": schema("provider"),
        "resources": {f"{name}_{one}": schema(one) for one in NAMES[name] if not one.startswith(data)},
        "data": {one.removeprefix("data_"): schema(one) for one in NAMES[name] if one.startswith(data)},
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        providers = {name: provider(name, version, Path(scratch)) for name, version in PACKAGES.items()}
    FILE.write_text(json.dumps(providers, indent=1, sort_keys=True) + "\n")
    print(f"{FILE.name}: {len(FILE.read_text()) // 1000} kB")
